#include "passes/in_place.h"

#include <algorithm>
#include <vector>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace {
namespace {

class InPlace {
 public:
  explicit InPlace(Graph& graph)
      : graph_(graph),
        holds_result_(result_flags(graph)),
        last_read_(static_cast<size_t>(graph.tensor_count()), -1) {
    const std::vector<OperatorId>& order = graph.order();
    for (size_t i = 0; i < order.size(); ++i) {
      for (TensorId input : graph.op(order[i]).inputs) {
        last_read_[static_cast<size_t>(input)] = static_cast<int>(i);
      }
    }
  }

  int run() {
    for (TensorId id = 0; id < graph_.tensor_count(); ++id) graph_.tensor(id).storage = kNone;
    const std::vector<OperatorId>& order = graph_.order();
    for (size_t i = 0; i < order.size(); ++i) {
      const Operator& op = graph_.op(order[i]);
      const OperatorDefinition& definition = definition_of(op.type);
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
  TensorId root_of(TensorId tensor) const {
    const TensorId storage = graph_.tensor(tensor).storage;
    return storage == kNone ? tensor : storage;
  }

  void try_pair(const Operator& op, size_t output_slot, size_t input_slot, int position) {
    const TensorId output = op.outputs[output_slot];
    const TensorId input = op.inputs[input_slot];
    const Tensor& from = graph_.tensor(input);
    const Tensor& to = graph_.tensor(output);
    const TensorId root = root_of(input);
    const auto r = static_cast<size_t>(root);
    if (to.storage != kNone || from.type != to.type || from.layout != to.layout) return;
    const Role role = graph_.tensor(root).role;
    if ((is_persistent(role) && role != Role::accumulator) || holds_result_[r]) return;
    if (last_read_[r] > position) return;
    for (size_t slot = 0; slot < op.inputs.size(); ++slot) {
      if (slot != input_slot && root_of(op.inputs[slot]) == root) return;
    }
    for (TensorId other : op.outputs) {
      if (graph_.tensor(other).storage == root) return;
    }
    join(output, root);
  }

  // From here on last_read_ and holds_result_ of the root speak for all that lies in its memory.
  void join(TensorId tensor, TensorId root) {
    const auto t = static_cast<size_t>(tensor);
    const auto r = static_cast<size_t>(root);
    graph_.tensor(tensor).storage = root;
    last_read_[r] = std::max(last_read_[r], last_read_[t]);
    holds_result_[r] = holds_result_[r] || holds_result_[t];
    ++count_;
  }

  Graph& graph_;
  std::vector<bool> holds_result_;
  std::vector<int> last_read_;
  int count_ = 0;
};

}  // namespace

int assign_in_place(Graph& graph) { return InPlace(graph).run(); }

}  // namespace millrace
