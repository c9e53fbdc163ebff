#include "passes/gradient_fusion.h"

#include <string>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {
void fuse_gradients(graph::Graph& graph) {
  const auto readers = graph.consumers();
  const std::vector<bool> is_result = result_flags(graph);
  std::vector<bool> removed(static_cast<size_t>(graph.operator_count()), false);
  for (graph::OperatorId id : graph.order()) {
    graph::Operator& op = graph.op(id);
    const std::string_view of_one = graph::definition_of(op).type;
    const std::string_view of_sum = graph::definition_of(op).of_sum;
    if (of_sum.empty() || op.inputs[0] == op.inputs[1]) continue;
    graph::Tensor& sum = graph.tensor(op.inputs[0]);
    const auto sum_index = static_cast<size_t>(op.inputs[0]);
    if (sum.producer == graph::kNone || sum.role != graph::Role::activation || is_result[sum_index])
      continue;
    const graph::Operator& add = graph.op(sum.producer);
    if (!graph::definition_of(add).is_sum || add.attributes.flag("relu") ||
        add.phase != graph::Phase::backward || readers[sum_index].size() != 1) {
      continue;
    }
    removed[static_cast<size_t>(sum.producer)] = true;
    sum.producer = graph::kNone;
    op.inputs = {add.inputs[0], add.inputs[1], op.inputs[1]};
    op.type = of_sum;
    if (op.name.ends_with(of_one)) {
      op.name.replace(op.name.size() - of_one.size(), of_one.size(), of_sum);
    }
  }
  erase_operators(graph, removed);
}

}  // namespace millrace::passes
