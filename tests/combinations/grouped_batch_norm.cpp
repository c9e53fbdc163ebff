#include "grouped_batch_norm.h"

#include <fmt/format.h>

namespace millrace::combinations {
namespace {

constexpr size_t kFirstBuffer = 3;  // among the inputs of a batch norm: two of them
constexpr size_t kResidual = 5;

graph::TensorId copy_of(graph::Graph& graph, graph::TensorId buffer, size_t group) {
  graph::Tensor tensor = graph.tensor(buffer);
  tensor.name = fmt::format("{}#{}", tensor.name, group);
  return graph.add_tensor(std::move(tensor));
}

graph::TensorId rows_of(graph::Graph& graph, const std::string& name, graph::TensorId x,
                        int64_t begin, int64_t end) {
  return graph.apply("slice", name, {x}, {{"axis", int64_t{0}}, {"begin", begin}, {"end", end}});
}

graph::TensorId normalise_groups(graph::Graph& graph, const graph::Operator& op,
                                 const std::vector<graph::TensorId>& inputs,
                                 const std::vector<int64_t>& sizes) {
  std::vector<graph::TensorId> parts;
  int64_t begin = 0;
  for (size_t group = 0; group < sizes.size(); ++group) {
    const std::string name = fmt::format("{}#{}", op.name, group);
    const int64_t end = begin + sizes[group];
    std::vector<graph::TensorId> own = inputs;
    own[0] = rows_of(graph, name + "/rows", inputs[0], begin, end);
    for (size_t i = kFirstBuffer; group > 0 && i < kResidual; ++i) {
      own[i] = copy_of(graph, inputs[i], group);
    }
    if (own.size() > kResidual) {
      own[kResidual] = rows_of(graph, name + "/residual", inputs[kResidual], begin, end);
    }
    parts.push_back(graph.apply("batch_norm", name, own, op.attributes));
    begin = end;
  }
  return graph.apply("concat", op.name, parts, {{"axis", int64_t{0}}});
}

}  // namespace

graph::Graph with_row_groups(const graph::Graph& network, const RowGroups& groups) {
  graph::Graph graph;
  std::vector<graph::TensorId> ids(static_cast<size_t>(network.tensor_count()), graph::kNone);
  const auto place = [&](graph::TensorId id) -> graph::TensorId& {
    return ids[static_cast<size_t>(id)];
  };
  for (graph::TensorId id = 0; id < network.tensor_count(); ++id) {
    if (network.tensor(id).producer == graph::kNone)
      place(id) = graph.add_tensor(network.tensor(id));
  }
  for (const graph::OperatorId id : network.order()) {
    const graph::Operator& op = network.op(id);
    std::vector<graph::TensorId> inputs;
    for (const graph::TensorId input : op.inputs) inputs.push_back(place(input));
    const auto found = groups.find(op.name);
    if (op.type == "batch_norm" && found != groups.end()) {
      place(op.outputs[0]) = normalise_groups(graph, op, inputs, found->second);
      graph.tensor(place(op.outputs[0])).name = network.tensor(op.outputs[0]).name;
      continue;
    }
    const graph::OperatorId added =
        graph.add_operator(op.type, op.name, inputs, op.attributes, op.phase);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      const graph::TensorId output = graph.op(added).outputs[i];
      graph.tensor(output).name = network.tensor(op.outputs[i]).name;
      place(op.outputs[i]) = output;
    }
  }
  for (const graph::TensorId id : network.results()) graph.add_result(place(id));
  return graph;
}

}  // namespace millrace::combinations
