#include "passes/optimizer.h"

#include <algorithm>
#include <string>
#include <utility>

namespace millrace {
namespace {

class Updates {
 public:
  Updates(Graph& graph, const OptimizerSettings& settings) : graph_(graph), settings_(settings) {}

  void measure_norm(const std::vector<ParameterGradient>& gradients) {
    std::vector<TensorId> all;
    for (const ParameterGradient& pair : gradients) all.push_back(pair.gradient);
    const TensorId squares =
        graph_.apply("sum_of_squares", "gradients/sum_of_squares", all, {}, Phase::update);
    clip_scale_ = graph_.apply("clip_scale", "gradients/clip_scale", {squares},
                               {{"max_norm", settings_.clip_norm}}, Phase::update);
  }

  // Settings and state of a head that updates its own centres; LARS treats it as SGD does.
  void complete_head(OperatorId id) {
    using Kind = OptimizerSettings::Kind;
    const TensorId centres = graph_.op(id).inputs.at(kCentres);
    std::string_view kind = settings_.momentum == 0 ? "" : "_momentum";
    std::vector<std::string> states = {".momentum"};
    if (settings_.kind == Kind::adamw) {
      kind = "_adamw";
      states = {".first_moment", ".second_moment"};
    } else if (kind.empty()) {
      states.clear();
    }
    std::vector<TensorId> added;
    for (const std::string& suffix : states) added.push_back(state(centres, suffix));
    Operator& op = graph_.op(id);
    op.type += kind;
    op.inputs.insert(op.inputs.end(), added.begin(), added.end());
    op.attributes.set("weight_decay", settings_.weight_decay);
    op.attributes.set("momentum", settings_.momentum);
    op.attributes.set("nesterov", settings_.nesterov);
    op.attributes.set("beta1", settings_.beta1);
    op.attributes.set("beta2", settings_.beta2);
    op.attributes.set("epsilon", settings_.epsilon);
  }

  OperatorId add(const ParameterGradient& pair) {
    const bool vector = graph_.tensor(pair.parameter).type.shape.size() <= 1;
    const double decay = vector && !settings_.decay_all ? 0.0 : settings_.weight_decay;
    if (settings_.kind == OptimizerSettings::Kind::adamw) return adamw(pair, decay);
    if (settings_.kind == OptimizerSettings::Kind::lars && !vector) return lars(pair, decay);
    return sgd(pair, decay);
  }

 private:
  OperatorId sgd(const ParameterGradient& pair, double decay) {
    Attributes attributes = {{"momentum", settings_.momentum},
                             {"weight_decay", decay},
                             {"nesterov", settings_.nesterov},
                             {"dampening", 0.0}};
    if (settings_.momentum == 0) {
      return update("sgd_plain_update", {pair.parameter, pair.gradient}, std::move(attributes));
    }
    return update("sgd_update", {pair.parameter, state(pair.parameter, ".momentum"), pair.gradient},
                  std::move(attributes));
  }

  OperatorId adamw(const ParameterGradient& pair, double decay) {
    const TensorId first = state(pair.parameter, ".first_moment");
    const TensorId second = state(pair.parameter, ".second_moment");
    return update("adamw_update", {pair.parameter, first, second, pair.gradient},
                  {{"beta1", settings_.beta1},
                   {"beta2", settings_.beta2},
                   {"epsilon", settings_.epsilon},
                   {"weight_decay", decay}});
  }

  OperatorId lars(const ParameterGradient& pair, double decay) {
    return update("lars_update",
                  {pair.parameter, state(pair.parameter, ".momentum"), pair.gradient},
                  {{"momentum", settings_.momentum},
                   {"weight_decay", decay},
                   {"trust", settings_.trust},
                   {"epsilon", settings_.epsilon}});
  }

  static constexpr size_t kCentres = 5;  // among the inputs of margin_head_update

  TensorId state(TensorId parameter, const std::string& suffix) {
    Tensor tensor;
    tensor.name = graph_.tensor(parameter).name + suffix;
    tensor.type = graph_.tensor(parameter).type;
    tensor.role = Role::optimizer_state;
    return graph_.add_tensor(std::move(tensor));
  }

  OperatorId update(std::string_view type, std::vector<TensorId> inputs, Attributes attributes) {
    const std::string name = graph_.tensor(inputs[0]).name + "/update";
    attributes.set("has_clip", clip_scale_ != kNone);
    if (clip_scale_ != kNone) inputs.push_back(clip_scale_);
    return graph_.add_operator(type, name, std::move(inputs), std::move(attributes), Phase::update);
  }

  Graph& graph_;
  const OptimizerSettings& settings_;
  TensorId clip_scale_ = kNone;
};

}  // namespace

void add_updates(Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings) {
  Updates updates(graph, settings);
  for (const OperatorId id : graph.order()) {
    if (graph.op(id).type == "margin_head_update") updates.complete_head(id);
  }
  if (gradients.empty()) return;
  if (settings.clip_norm > 0) {
    updates.measure_norm(gradients);
    for (const ParameterGradient& pair : gradients) updates.add(pair);
    return;
  }

  const std::vector<OperatorId> before = graph.order();
  std::vector<size_t> last_use(static_cast<size_t>(graph.tensor_count()), 0);
  for (size_t i = 0; i < before.size(); ++i) {
    for (TensorId id : graph.op(before[i]).inputs) last_use[static_cast<size_t>(id)] = i;
    for (TensorId id : graph.op(before[i]).outputs) last_use[static_cast<size_t>(id)] = i;
  }
  std::vector<std::vector<OperatorId>> behind(before.size());
  for (const ParameterGradient& pair : gradients) {
    const size_t place = std::max(last_use[static_cast<size_t>(pair.parameter)],
                                  last_use[static_cast<size_t>(pair.gradient)]);
    behind[place].push_back(updates.add(pair));
  }
  std::vector<OperatorId> order;
  for (size_t i = 0; i < before.size(); ++i) {
    order.push_back(before[i]);
    order.insert(order.end(), behind[i].begin(), behind[i].end());
  }
  graph.set_order(std::move(order));
}

}  // namespace millrace
