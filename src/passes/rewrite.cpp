#include "passes/rewrite.h"

#include <fmt/format.h>

#include "base/parts.h"
#include "graph/operator_definition.h"

namespace millrace::passes {

std::vector<bool> result_flags(const graph::Graph& graph) {
  std::vector<bool> flags(static_cast<size_t>(graph.tensor_count()), false);
  for (graph::TensorId id : graph.results()) flags[static_cast<size_t>(id)] = true;
  return flags;
}

std::vector<graph::TensorId> mutated_tensors(const graph::Operator& op) {
  if (op.attributes.flag("inference")) return {};
  std::vector<graph::TensorId> tensors;
  for (int input : graph::definition_of(op.type).mutated_inputs) {
    tensors.push_back(op.inputs.at(static_cast<size_t>(input)));
  }
  return tensors;
}

int64_t bytes_of(const graph::Tensor& tensor) {
  const int64_t whole = tensor.layout.physical_elements(tensor.type.shape);
  return part_size(whole, tensor.part.index, tensor.part.count) * graph::size_of(tensor.type.dtype);
}

void erase_operators(graph::Graph& graph, const std::vector<bool>& removed) {
  std::vector<graph::OperatorId> order;
  for (graph::OperatorId id : graph.order()) {
    if (!removed[static_cast<size_t>(id)]) order.push_back(id);
  }
  graph.set_order(std::move(order));
}

UniqueNames::UniqueNames(const graph::Graph& graph) {
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) used_.insert(graph.tensor(id).name);
}

std::string UniqueNames::take(const std::string& name) {
  std::string candidate = name;
  for (int i = 2; !used_.insert(candidate).second; ++i) candidate = fmt::format("{}.{}", name, i);
  return candidate;
}

}  // namespace millrace::passes
