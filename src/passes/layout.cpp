#include "passes/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace {

LayoutOracle::~LayoutOracle() = default;

namespace {

class LayoutChooser {
 public:
  LayoutChooser(Graph& graph, const LayoutOracle& oracle,
                const std::map<std::string, Layout>& fixed)
      : graph_(graph),
        oracle_(oracle),
        names_(graph),
        undecided_(static_cast<size_t>(graph.tensor_count()), false) {
    for (TensorId id = 0; id < graph.tensor_count(); ++id) {
      Tensor& tensor = graph.tensor(id);
      if (!is_persistent(tensor.role)) continue;
      const auto found = fixed.find(tensor.name);
      undecided_[static_cast<size_t>(id)] = found == fixed.end();
      tensor.layout = found == fixed.end() ? Layout() : found->second;
    }
  }

  LayoutReport run() {
    for (OperatorId id : std::vector<OperatorId>(graph_.order())) {
      lay_out(id);
      order_.push_back(id);
      for (TensorId written : mutated_tensors(graph_.op(id))) copies_.erase(written);
    }
    graph_.set_order(std::move(order_));
    return std::move(report_);
  }

 private:
  bool is_undecided(TensorId tensor) const {
    return static_cast<size_t>(tensor) < undecided_.size() &&
           undecided_[static_cast<size_t>(tensor)];
  }

  void decide(TensorId tensor, const Layout& layout) {
    graph_.tensor(tensor).layout = layout;
    undecided_[static_cast<size_t>(tensor)] = false;
  }

  void lay_out(OperatorId id) {
    state_follows_parameter(graph_.op(id));
    const LayoutOracle::Wish wish = wish_of(graph_.op(id));
    const std::vector<TensorId> written = mutated_tensors(graph_.op(id));
    for (size_t i = 0; i < wish.inputs.size(); ++i) {
      const TensorId input = graph_.op(id).inputs[i];
      if (is_undecided(input)) decide(input, wish.inputs[i]);
      if (graph_.tensor(input).layout == wish.inputs[i]) continue;
      if (std::find(written.begin(), written.end(), input) != written.end()) {
        throw std::logic_error(fmt::format(
            "operator '{}' writes '{}' and wants it as '{}', not '{}'", graph_.op(id).name,
            graph_.tensor(input).name, wish.inputs[i].tag(), graph_.tensor(input).layout.tag()));
      }
      const TensorId copy = reordered(input, wish.inputs[i], graph_.op(id).phase);
      graph_.op(id).inputs[i] = copy;
    }
    for (size_t i = 0; i < wish.outputs.size(); ++i) {
      graph_.tensor(graph_.op(id).outputs[i]).layout = wish.outputs[i];
    }
  }

  void state_follows_parameter(const Operator& op) {
    if (op.inputs.empty()) return;
    const Tensor& parameter = graph_.tensor(op.inputs[0]);
    for (TensorId input : op.inputs) {
      const Tensor& state = graph_.tensor(input);
      if (state.role == Role::optimizer_state && is_undecided(input) &&
          state.type.shape == parameter.type.shape) {
        decide(input, parameter.layout);
      }
    }
  }

  LayoutOracle::Wish wish_of(const Operator& op) const {
    if (definition_of(op.type).is_view) {
      return {std::vector<Layout>(op.inputs.size()), std::vector<Layout>(op.outputs.size())};
    }
    LayoutOracle::Wish wish = oracle_.wish(graph_, op);
    if (wish.inputs.size() != op.inputs.size() || wish.outputs.size() != op.outputs.size()) {
      throw std::logic_error(fmt::format(
          "the layout wish for '{}' ({}) does not match its inputs and outputs", op.name, op.type));
    }
    return wish;
  }

  TensorId reordered(TensorId tensor, const Layout& layout, Phase phase) {
    auto& copies = copies_[tensor];
    for (TensorId copy : copies) {
      if (graph_.tensor(copy).layout == layout) return copy;
    }
    const std::string name = graph_.tensor(tensor).name;
    const OperatorId id =
        graph_.add_operator("reorder", names_.take(name + "/reorder"), {tensor}, {}, phase);
    const TensorId copy = graph_.op(id).outputs[0];
    graph_.tensor(copy).layout = layout;
    order_.push_back(id);
    copies.push_back(copy);
    ++report_.reorders;
    report_.reorder_bytes += bytes_of(graph_.tensor(copy));
    report_.reordered.push_back(name);
    return copy;
  }

  Graph& graph_;
  const LayoutOracle& oracle_;
  UniqueNames names_;
  std::vector<bool> undecided_;                       // persistent tensors nobody has read so far
  std::map<TensorId, std::vector<TensorId>> copies_;  // reordered copies still up to date
  std::vector<OperatorId> order_;
  LayoutReport report_;
};

}  // namespace

LayoutReport choose_layouts(Graph& graph, const LayoutOracle& oracle,
                            const std::map<std::string, Layout>& fixed) {
  return LayoutChooser(graph, oracle, fixed).run();
}

}  // namespace millrace
