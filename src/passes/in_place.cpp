#include "passes/in_place.h"

#include <algorithm>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

class InPlace {
 public:
  explicit InPlace(graph::Graph& graph)
      : graph_(graph),
        holds_result_(result_flags(graph)),
        last_read_(static_cast<size_t>(graph.tensor_count()), -1) {
    const std::vector<graph::OperatorId>& order = graph.order();
    for (size_t i = 0; i < order.size(); ++i) {
      for (graph::TensorId input : graph.op(order[i]).inputs) {
        last_read_[static_cast<size_t>(input)] = static_cast<int>(i);
      }
    }
  }

  int run() {
    for (graph::TensorId id = 0; id < graph_.tensor_count(); ++id)
      graph_.tensor(id).storage = graph::kNone;
    const std::vector<graph::OperatorId>& order = graph_.order();
    for (size_t i = 0; i < order.size(); ++i) {
      const graph::Operator& op = graph_.op(order[i]);
      const graph::OperatorDefinition& definition = graph::definition_of(op.type);
      if (definition.is_view) join(op.outputs[0], root_of(op.inputs[0]));
      for (const auto& pair : definition.in_place) {
        if (pair.output < static_cast<int>(op.outputs.size()) &&
            pair.input < static_cast<int>(op.inputs.size())) {
          try_pair(op, static_cast<size_t>(pair.output), static_cast<size_t>(pair.input),
                   static_cast<int>(i));
        }
      }
    }
    return count_;
  }

 private:
  graph::TensorId root_of(graph::TensorId tensor) const {
    const graph::TensorId storage = graph_.tensor(tensor).storage;
    return storage == graph::kNone ? tensor : storage;
  }

  void try_pair(const graph::Operator& op, size_t output_slot, size_t input_slot, int position) {
    const graph::TensorId output = op.outputs[output_slot];
    const graph::TensorId input = op.inputs[input_slot];
    const graph::Tensor& from = graph_.tensor(input);
    const graph::Tensor& to = graph_.tensor(output);
    const graph::TensorId root = root_of(input);
    const auto r = static_cast<size_t>(root);
    if (to.storage != graph::kNone || from.type != to.type || from.layout != to.layout) return;
    const graph::Role role = graph_.tensor(root).role;
    if ((graph::is_persistent(role) && role != graph::Role::accumulator) || holds_result_[r])
      return;
    if (last_read_[r] > position) return;
    for (size_t slot = 0; slot < op.inputs.size(); ++slot) {
      if (slot != input_slot && root_of(op.inputs[slot]) == root) return;
    }
    for (graph::TensorId other : op.outputs) {
      if (graph_.tensor(other).storage == root) return;
    }
    join(output, root);
  }

  // From here on last_read_ and holds_result_ of the root speak for all that lies in its memory.
  void join(graph::TensorId tensor, graph::TensorId root) {
    const auto t = static_cast<size_t>(tensor);
    const auto r = static_cast<size_t>(root);
    graph_.tensor(tensor).storage = root;
    last_read_[r] = std::max(last_read_[r], last_read_[t]);
    holds_result_[r] = holds_result_[r] || holds_result_[t];
    ++count_;
  }

  graph::Graph& graph_;
  std::vector<bool> holds_result_;
  std::vector<int> last_read_;
  int count_ = 0;
};

}  // namespace

int assign_in_place(graph::Graph& graph) { return InPlace(graph).run(); }

}  // namespace millrace::passes
