#include "passes/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {

LayoutOracle::~LayoutOracle() = default;

namespace {

class LayoutChooser {
 public:
  LayoutChooser(graph::Graph& graph, const LayoutOracle& oracle,
                const std::map<std::string, graph::Layout>& fixed)
      : graph_(graph),
        oracle_(oracle),
        names_(graph),
        undecided_(static_cast<size_t>(graph.tensor_count()), false) {
    for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
      graph::Tensor& tensor = graph.tensor(id);
      if (!graph::is_persistent(tensor.role)) continue;
      const auto found = fixed.find(tensor.name);
      undecided_[static_cast<size_t>(id)] = found == fixed.end();
      tensor.layout = found == fixed.end() ? graph::Layout() : found->second;
    }
  }

  LayoutReport run() {
    for (graph::OperatorId id : std::vector<graph::OperatorId>(graph_.order())) {
      lay_out(id);
      order_.push_back(id);
      for (graph::TensorId written : mutated_tensors(graph_.op(id))) copies_.erase(written);
    }
    graph_.set_order(std::move(order_));
    return std::move(report_);
  }

 private:
  bool is_undecided(graph::TensorId tensor) const {
    return static_cast<size_t>(tensor) < undecided_.size() &&
           undecided_[static_cast<size_t>(tensor)];
  }

  void decide(graph::TensorId tensor, const graph::Layout& layout) {
    graph_.tensor(tensor).layout = layout;
    undecided_[static_cast<size_t>(tensor)] = false;
  }

  void lay_out(graph::OperatorId id) {
    state_follows_parameter(graph_.op(id));
    const LayoutOracle::Wish wish = wish_of(graph_.op(id));
    const std::vector<graph::TensorId> written = mutated_tensors(graph_.op(id));
    for (size_t i = 0; i < wish.inputs.size(); ++i) {
      const graph::TensorId input = graph_.op(id).inputs[i];
      if (is_undecided(input)) decide(input, wish.inputs[i]);
      if (graph_.tensor(input).layout == wish.inputs[i]) continue;
      if (std::find(written.begin(), written.end(), input) != written.end()) {
        throw std::logic_error(fmt::format(
            "operator '{}' writes '{}' and wants it as '{}', not '{}'", graph_.op(id).name,
            graph_.tensor(input).name, wish.inputs[i].tag(), graph_.tensor(input).layout.tag()));
      }
      const graph::TensorId copy = reordered(input, wish.inputs[i], graph_.op(id).phase);
      graph_.op(id).inputs[i] = copy;
    }
    for (size_t i = 0; i < wish.outputs.size(); ++i) {
      graph_.tensor(graph_.op(id).outputs[i]).layout = wish.outputs[i];
    }
  }

  void state_follows_parameter(const graph::Operator& op) {
    if (op.inputs.empty()) return;
    const graph::Tensor& parameter = graph_.tensor(op.inputs[0]);
    for (graph::TensorId input : op.inputs) {
      const graph::Tensor& state = graph_.tensor(input);
      if (state.role == graph::Role::optimizer_state && is_undecided(input) &&
          state.type.shape == parameter.type.shape) {
        decide(input, parameter.layout);
      }
    }
  }

  LayoutOracle::Wish wish_of(const graph::Operator& op) const {
    if (graph::definition_of(op.type).is_view) {
      return {std::vector<graph::Layout>(op.inputs.size()),
              std::vector<graph::Layout>(op.outputs.size())};
    }
    LayoutOracle::Wish wish = oracle_.wish(graph_, op);
    if (wish.inputs.size() != op.inputs.size() || wish.outputs.size() != op.outputs.size()) {
      throw std::logic_error(fmt::format(
          "the layout wish for '{}' ({}) does not match its inputs and outputs", op.name, op.type));
    }
    return wish;
  }

  graph::TensorId reordered(graph::TensorId tensor, const graph::Layout& layout,
                            graph::Phase phase) {
    auto& copies = copies_[tensor];
    for (graph::TensorId copy : copies) {
      if (graph_.tensor(copy).layout == layout) return copy;
    }
    const std::string name = graph_.tensor(tensor).name;
    const graph::OperatorId id =
        graph_.add_operator("reorder", names_.take(name + "/reorder"), {tensor}, {}, phase);
    const graph::TensorId copy = graph_.op(id).outputs[0];
    graph_.tensor(copy).layout = layout;
    order_.push_back(id);
    copies.push_back(copy);
    ++report_.reorders;
    report_.reorder_bytes += bytes_of(graph_.tensor(copy));
    report_.reordered.push_back(name);
    return copy;
  }

  graph::Graph& graph_;
  const LayoutOracle& oracle_;
  UniqueNames names_;
  std::vector<bool> undecided_;  // persistent tensors nobody has read so far
  std::map<graph::TensorId, std::vector<graph::TensorId>>
      copies_;  // reordered copies still up to date
  std::vector<graph::OperatorId> order_;
  LayoutReport report_;
};

}  // namespace

LayoutReport choose_layouts(graph::Graph& graph, const LayoutOracle& oracle,
                            const std::map<std::string, graph::Layout>& fixed) {
  return LayoutChooser(graph, oracle, fixed).run();
}

}  // namespace millrace::passes
