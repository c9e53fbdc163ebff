#include "passes/norm_folding.h"

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {

void fold_norms(graph::Graph& graph) {
  const auto readers = graph.consumers();
  const std::vector<bool> is_result = result_flags(graph);
  const auto times_read = [&](graph::TensorId id) {
    const auto place = static_cast<size_t>(id);
    return readers[place].size() + (is_result[place] ? 1 : 0);
  };
  std::vector<bool> removed(static_cast<size_t>(graph.operator_count()), false);
  for (const graph::OperatorId id : graph.order()) {
    graph::Operator& norm = graph.op(id);
    if (!graph::definition_of(norm).has_running_statistics || !norm.attributes.flag("inference")) {
      continue;
    }
    const graph::OperatorId before = graph.tensor(norm.inputs[0]).producer;
    if (before == graph::kNone || times_read(norm.inputs[0]) > 1 ||
        times_read(norm.outputs[1]) + times_read(norm.outputs[2]) > 0) {
      continue;
    }
    const graph::Operator& host = graph.op(before);
    const std::string_view type = graph::definition_of(host).normalised;
    // A bias or a ReLU would lie between them.
    if (type.empty() || host.inputs.size() > 2 || host.attributes.flag("relu")) continue;
    graph::Operator joined = norm;
    joined.type = type;
    joined.inputs = host.inputs;
    joined.inputs.insert(joined.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
    joined.outputs.resize(1);
    joined.attributes = host.attributes;
    joined.attributes.set_all(norm.attributes);
    for (const graph::TensorId gone : {norm.inputs[0], norm.outputs[1], norm.outputs[2]}) {
      graph.tensor(gone).producer = graph::kNone;
    }
    norm = std::move(joined);
    removed[static_cast<size_t>(before)] = true;
  }
  erase_operators(graph, removed);
}

}  // namespace millrace::passes
