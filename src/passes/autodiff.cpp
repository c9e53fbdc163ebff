#include "passes/autodiff.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace {
namespace {

// Which tensors depend on a parameter.
std::vector<bool> trained_tensors(const Graph& graph) {
  std::vector<bool> trained(static_cast<size_t>(graph.tensor_count()), false);
  for (TensorId id = 0; id < graph.tensor_count(); ++id) {
    trained[static_cast<size_t>(id)] = graph.tensor(id).role == Role::parameter;
  }
  for (OperatorId id : graph.order()) {
    const Operator& op = graph.op(id);
    const bool any = std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
      return trained[static_cast<size_t>(input)];
    });
    for (TensorId output : op.outputs) trained[static_cast<size_t>(output)] = any;
  }
  return trained;
}

class Backward : public Differentiation {
 public:
  explicit Backward(Graph& graph)
      : graph_(graph),
        names_(graph),
        trained_(trained_tensors(graph)),
        gradients_(static_cast<size_t>(graph.tensor_count()), kNone) {}

  bool trained(TensorId tensor) const { return trained_[static_cast<size_t>(tensor)]; }
  TensorId gradient(TensorId tensor) const { return gradients_[static_cast<size_t>(tensor)]; }

  void seed(TensorId loss) {
    const Shape shape = graph_.tensor(loss).type.shape;
    const OperatorId fill =
        add("fill", graph_.tensor(loss).name, {}, {{"shape", shape}, {"value", 1.0}});
    gradients_[static_cast<size_t>(loss)] = result(fill);
  }

  void run(OperatorId id) {
    // A copy: rules add operators, which moves the graph's own.
    op_ = graph_.op(id);
    const bool reached = std::any_of(op_.outputs.begin(), op_.outputs.end(),
                                     [&](TensorId output) { return gradient(output) != kNone; });
    const bool wanted = std::any_of(op_.inputs.begin(), op_.inputs.end(),
                                    [&](TensorId input) { return trained(input); });
    if (!reached || !wanted) return;
    const auto rule = definition_of(op_.type).differentiate;
    if (rule == nullptr) {
      fail_input(
          "Layer '{}' ({}) lies between the loss and a trained parameter but has no gradient.",
          op_.name, op_.type);
    }
    rule(*this);
  }

  // Makes the gradient of a parameter a tensor of its own, by a copy if another tensor shares it.
  TensorId claim(TensorId parameter, bool shared) {
    TensorId gradient_id = gradient(parameter);
    const std::string name = graph_.tensor(parameter).name;
    if (shared) gradient_id = result(add("reorder", name, {gradient_id}, {}));
    graph_.tensor(gradient_id).role = Role::gradient;
    graph_.tensor(gradient_id).name = names_.take(name + ".grad");
    return gradient_id;
  }

  Graph& graph() override { return graph_; }
  const Operator& op() const override { return op_; }
  TensorId output_gradient(size_t i) const override { return gradient(op_.outputs.at(i)); }
  bool needs_gradient(size_t i) const override { return trained(op_.inputs.at(i)); }

  void set_input_gradient(size_t i, TensorId arrived) override {
    const TensorId input_id = op_.inputs.at(i);
    if (!trained(input_id)) return;
    TensorId& sum = gradients_[static_cast<size_t>(input_id)];
    sum = sum == kNone ? arrived
                       : result(add("add", graph_.tensor(input_id).name, {sum, arrived}, {}));
  }

  OperatorId apply(std::string_view type, std::vector<TensorId> inputs,
                   Attributes attributes) override {
    return add(type, op_.name, std::move(inputs), std::move(attributes));
  }

 private:
  OperatorId add(std::string_view type, const std::string& owner, std::vector<TensorId> inputs,
                 Attributes attributes) {
    return graph_.add_operator(type, names_.take(owner + "/" + std::string(type)),
                               std::move(inputs), std::move(attributes), Phase::backward);
  }

  Graph& graph_;
  UniqueNames names_;
  const std::vector<bool> trained_;
  std::vector<TensorId> gradients_;  // by forward tensor
  Operator op_;
};

}  // namespace

std::vector<ParameterGradient> differentiate(Graph& graph, TensorId loss) {
  Backward backward(graph);
  if (!backward.trained(loss)) {
    fail_input("The loss '{}' depends on no trained parameter, so there is nothing to train.",
               graph.tensor(loss).name);
  }
  const TensorId forward_tensors = graph.tensor_count();
  const std::vector<OperatorId> forward = graph.order();
  backward.seed(loss);
  for (auto id = forward.rbegin(); id != forward.rend(); ++id) backward.run(*id);

  std::vector<bool> taken(static_cast<size_t>(graph.tensor_count()), false);
  for (OperatorId id : graph.order()) {
    if (graph.op(id).phase != Phase::backward) continue;
    for (TensorId input : graph.op(id).inputs) taken[static_cast<size_t>(input)] = true;
  }
  std::vector<ParameterGradient> gradients;
  for (TensorId id = 0; id < forward_tensors; ++id) {
    const TensorId gradient = backward.gradient(id);
    if (graph.tensor(id).role != Role::parameter || gradient == kNone) continue;
    const bool shared = taken[static_cast<size_t>(gradient)];
    taken[static_cast<size_t>(gradient)] = true;
    gradients.push_back({id, backward.claim(id, shared)});
  }
  return gradients;
}

}  // namespace millrace
