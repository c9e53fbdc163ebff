#include "passes/autodiff.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "graph/operator_definition.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

class Backward : public graph::Differentiation {
 public:
  Backward(graph::Graph& graph, const std::vector<graph::TensorId>& wanted)
      : graph_(graph),
        names_(graph),
        trained_(trained_tensors(graph, wanted)),
        gradients_(static_cast<size_t>(graph.tensor_count()), graph::kNone) {}

  bool trained(graph::TensorId tensor) const { return trained_[static_cast<size_t>(tensor)]; }
  graph::TensorId gradient(graph::TensorId tensor) const {
    return gradients_[static_cast<size_t>(tensor)];
  }

  void seed(const GradientSeed& seed) {
    if (!trained(seed.tensor)) return;
    graph::TensorId arrived = seed.gradient;
    if (arrived == graph::kNone) {
      const graph::Tensor& loss = graph_.tensor(seed.tensor);
      const graph::Attributes ones = {
          {"shape", loss.type.shape}, {"value", 1.0}, {"is_scaled", true}};
      arrived = result(add("fill", std::string(loss.name), {}, ones));
    }
    add_gradient(seed.tensor, arrived);
  }

  void run(graph::OperatorId id) {
    // A copy: rules add operators, which moves the graph's own.
    op_ = graph_.op(id);
    const bool reached =
        std::any_of(op_.outputs.begin(), op_.outputs.end(),
                    [&](graph::TensorId output) { return gradient(output) != graph::kNone; });
    const bool wanted = std::any_of(op_.inputs.begin(), op_.inputs.end(),
                                    [&](graph::TensorId input) { return trained(input); });
    if (!reached || !wanted) return;
    const auto rule = graph::definition_of(op_.type).differentiate;
    if (rule == nullptr) {
      fail_input(
          "Layer '{}' ({}) lies between the loss and a trained parameter but has no gradient.",
          op_.name, op_.type);
    }
    rule(*this);
  }

  // Makes the gradient of a tensor one of its own, by a copy if another tensor shares it.
  graph::TensorId claim(graph::TensorId owner, bool shared, graph::Role role) {
    graph::TensorId gradient_id = gradient(owner);
    const std::string name = graph_.tensor(owner).name;
    if (shared) gradient_id = result(add("reorder", name, {gradient_id}, {}));
    graph_.tensor(gradient_id).role = role;
    graph_.tensor(gradient_id).name = names_.take(name + ".grad");
    return gradient_id;
  }

  graph::Graph& graph() override { return graph_; }
  const graph::Operator& op() const override { return op_; }
  graph::TensorId output_gradient(size_t i) const override { return gradient(op_.outputs.at(i)); }
  bool needs_gradient(size_t i) const override { return trained(op_.inputs.at(i)); }

  void set_input_gradient(size_t i, graph::TensorId arrived) override {
    if (needs_gradient(i)) add_gradient(op_.inputs.at(i), arrived);
  }

  graph::OperatorId apply(std::string_view type, std::vector<graph::TensorId> inputs,
                          graph::Attributes attributes) override {
    return add(type, op_.name, std::move(inputs), std::move(attributes));
  }

 private:
  graph::OperatorId add(std::string_view type, const std::string& owner,
                        std::vector<graph::TensorId> inputs, graph::Attributes attributes) {
    return graph_.add_operator(type, names_.take(owner + "/" + std::string(type)),
                               std::move(inputs), std::move(attributes), graph::Phase::backward);
  }

  void add_gradient(graph::TensorId tensor, graph::TensorId arrived) {
    graph::TensorId& sum = gradients_[static_cast<size_t>(tensor)];
    sum = sum == graph::kNone ? arrived
                              : result(add("add", graph_.tensor(tensor).name, {sum, arrived}, {}));
  }

  graph::Graph& graph_;
  UniqueNames names_;
  const std::vector<bool> trained_;
  std::vector<graph::TensorId> gradients_;  // by forward tensor
  graph::Operator op_;
};

}  // namespace

std::vector<bool> trained_tensors(const graph::Graph& graph,
                                  const std::vector<graph::TensorId>& wanted) {
  std::vector<bool> trained(static_cast<size_t>(graph.tensor_count()), false);
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    trained[static_cast<size_t>(id)] = graph.tensor(id).role == graph::Role::parameter;
  }
  for (graph::TensorId id : wanted) trained[static_cast<size_t>(id)] = true;
  for (graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    const bool any = std::any_of(op.inputs.begin(), op.inputs.end(), [&](graph::TensorId input) {
      return trained[static_cast<size_t>(input)];
    });
    for (graph::TensorId output : op.outputs) trained[static_cast<size_t>(output)] = any;
  }
  return trained;
}

std::vector<ParameterGradient> differentiate(graph::Graph& graph, graph::TensorId loss) {
  if (!trained_tensors(graph, {})[static_cast<size_t>(loss)]) {
    fail_input("The loss '{}' depends on no trained parameter, so there is nothing to train.",
               graph.tensor(loss).name);
  }
  return differentiate(graph, {{loss}}, {}).parameters;
}

BackwardPass differentiate(graph::Graph& graph, const std::vector<GradientSeed>& seeds,
                           const std::vector<graph::TensorId>& wanted) {
  Backward backward(graph, wanted);
  const graph::TensorId forward_tensors = graph.tensor_count();
  const std::vector<graph::OperatorId> forward = graph.order();
  for (const GradientSeed& seed : seeds) backward.seed(seed);
  for (auto id = forward.rbegin(); id != forward.rend(); ++id) backward.run(*id);

  std::vector<bool> taken(static_cast<size_t>(graph.tensor_count()), false);
  for (graph::OperatorId id : graph.order()) {
    if (graph.op(id).phase != graph::Phase::backward) continue;
    for (graph::TensorId input : graph.op(id).inputs) taken[static_cast<size_t>(input)] = true;
  }
  const auto claim = [&](graph::TensorId owner, graph::Role role) {
    const graph::TensorId gradient = backward.gradient(owner);
    const bool shared =
        taken[static_cast<size_t>(gradient)] || graph.tensor(gradient).role == graph::Role::input;
    taken[static_cast<size_t>(gradient)] = true;
    return backward.claim(owner, shared, role);
  };
  BackwardPass pass;
  for (graph::TensorId id = 0; id < forward_tensors; ++id) {
    if (graph.tensor(id).role != graph::Role::parameter || backward.gradient(id) == graph::kNone)
      continue;
    pass.parameters.push_back({id, claim(id, graph::Role::gradient)});
  }
  for (graph::TensorId id : wanted) {
    if (backward.gradient(id) == graph::kNone) continue;
    pass.inputs.push_back({id, claim(id, graph::Role::activation)});
    graph.add_result(pass.inputs.back().gradient);
  }
  return pass;
}

std::vector<graph::OperatorId> weight_gradient_operators(const graph::Graph& graph) {
  std::vector<bool> needed = result_flags(graph);
  std::vector<graph::OperatorId> found;
  for (auto id = graph.order().rbegin(); id != graph.order().rend(); ++id) {
    const graph::Operator& op = graph.op(*id);
    if (op.phase != graph::Phase::backward) continue;
    const bool sent =
        std::any_of(op.outputs.begin(), op.outputs.end(),
                    [&](graph::TensorId output) { return needed[static_cast<size_t>(output)]; });
    if (!sent) {
      found.push_back(*id);
      continue;
    }
    for (graph::TensorId input : op.inputs) needed[static_cast<size_t>(input)] = true;
  }
  std::reverse(found.begin(), found.end());
  return found;
}

void defer_weight_gradients(graph::Graph& graph) {
  const std::vector<graph::OperatorId> deferred = weight_gradient_operators(graph);
  const std::set<graph::OperatorId> apart(deferred.begin(), deferred.end());
  std::vector<graph::OperatorId> order;
  std::vector<graph::OperatorId> updates;
  for (graph::OperatorId id : graph.order()) {
    if (apart.contains(id)) continue;
    (graph.op(id).phase == graph::Phase::update ? updates : order).push_back(id);
  }
  order.insert(order.end(), deferred.begin(), deferred.end());
  order.insert(order.end(), updates.begin(), updates.end());
  graph.set_order(std::move(order));
}

}  // namespace millrace::passes
