#include "passes/inference.h"

#include <utility>
#include <vector>

#include "passes/rewrite.h"

namespace millrace {
namespace {

// With running statistics there is nothing to exchange: an ordinary batch_norm is left.
void use_own_statistics(Graph& graph, OperatorId id, std::vector<bool>& removed) {
  constexpr size_t kStatistics = 5;
  Operator& op = graph.op(id);
  TensorId exchanged = op.inputs.at(kStatistics);
  while (graph.tensor(exchanged).producer != kNone) {
    const OperatorId producer = graph.tensor(exchanged).producer;
    removed[static_cast<size_t>(producer)] = true;
    graph.tensor(exchanged).producer = kNone;
    if (graph.op(producer).type == "batch_norm_statistics") break;
    exchanged = graph.op(producer).inputs.at(0);
  }
  op.inputs.erase(op.inputs.begin() + kStatistics);
  op.type = "batch_norm";
}

}  // namespace

void make_inference(Graph& graph) {
  std::vector<TensorId> stands_for(static_cast<size_t>(graph.tensor_count()));
  for (TensorId id = 0; id < graph.tensor_count(); ++id) stands_for[static_cast<size_t>(id)] = id;
  std::vector<bool> removed(static_cast<size_t>(graph.operator_count()), false);
  for (OperatorId id : graph.order()) {
    Operator& op = graph.op(id);
    for (TensorId& input : op.inputs) input = stands_for[static_cast<size_t>(input)];
    if (op.type == "batch_norm_synchronised") use_own_statistics(graph, id, removed);
    if (op.type == "batch_norm") op.attributes.set("inference", true);
    if (op.type == "dropout") {
      removed[static_cast<size_t>(id)] = true;
      stands_for[static_cast<size_t>(op.outputs[0])] = op.inputs[0];
      graph.tensor(op.outputs[0]).producer = kNone;
    }
  }
  std::vector<TensorId> results;
  for (TensorId id : graph.results()) results.push_back(stands_for[static_cast<size_t>(id)]);
  graph.set_results(std::move(results));
  erase_operators(graph, removed);
}

}  // namespace millrace
