#include "parallel/partition_facts.h"

namespace millrace::parallel {

std::vector<bool> operators_of_loss(const graph::Graph& graph) {
  std::vector<bool> tensors(static_cast<size_t>(graph.tensor_count()), false);
  std::vector<bool> operators(static_cast<size_t>(graph.operator_count()), false);
  const graph::TensorId loss = graph.find_tensor("loss");
  if (loss != graph::kNone) tensors[static_cast<size_t>(loss)] = true;
  if (loss == graph::kNone) {
    for (graph::TensorId id : graph.results()) tensors[static_cast<size_t>(id)] = true;
  }
  for (auto id = graph.order().rbegin(); id != graph.order().rend(); ++id) {
    for (graph::TensorId output : graph.op(*id).outputs) {
      if (tensors[static_cast<size_t>(output)]) operators[static_cast<size_t>(*id)] = true;
    }
    if (!operators[static_cast<size_t>(*id)]) continue;
    for (graph::TensorId input : graph.op(*id).inputs) tensors[static_cast<size_t>(input)] = true;
  }
  return operators;
}

std::vector<bool> operators_of_labels(const graph::Graph& graph) {
  std::vector<bool> found(static_cast<size_t>(graph.operator_count()), false);
  for (graph::OperatorId id : graph.order()) {
    bool raw = false;
    bool computed = false;
    bool follows = false;
    for (graph::TensorId input : graph.op(id).inputs) {
      const graph::Tensor& tensor = graph.tensor(input);
      raw = raw || tensor.role == graph::Role::input;
      computed = computed || tensor.producer != graph::kNone;
      follows = follows ||
                (tensor.producer != graph::kNone && found[static_cast<size_t>(tensor.producer)]);
    }
    found[static_cast<size_t>(id)] = follows || (raw && computed);
  }
  return found;
}

}  // namespace millrace::parallel
