#include "passes/gradient_fusion.h"

#include <string>
#include <vector>

#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

constexpr std::string_view kOld = "relu_backward";
constexpr std::string_view kNew = "add_relu_backward";

}  // namespace

void fuse_gradients(graph::Graph& graph) {
  const auto readers = graph.consumers();
  const std::vector<bool> is_result = result_flags(graph);
  std::vector<bool> removed(static_cast<size_t>(graph.operator_count()), false);
  for (graph::OperatorId id : graph.order()) {
    graph::Operator& op = graph.op(id);
    if (op.type != kOld || op.inputs[0] == op.inputs[1]) continue;
    graph::Tensor& sum = graph.tensor(op.inputs[0]);
    const auto sum_index = static_cast<size_t>(op.inputs[0]);
    if (sum.producer == graph::kNone || sum.role != graph::Role::activation || is_result[sum_index])
      continue;
    const graph::Operator& add = graph.op(sum.producer);
    if (add.type != "add" || add.attributes.flag("relu") || add.phase != graph::Phase::backward ||
        readers[sum_index].size() != 1) {
      continue;
    }
    removed[static_cast<size_t>(sum.producer)] = true;
    sum.producer = graph::kNone;
    op.inputs = {add.inputs[0], add.inputs[1], op.inputs[1]};
    op.type = kNew;
    if (op.name.ends_with(kOld)) {
      op.name.replace(op.name.size() - kOld.size(), kOld.size(), kNew);
    }
  }
  erase_operators(graph, removed);
}

}  // namespace millrace::passes
