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
    return update("sgd_update", {pair.parameter, state(pair, ".momentum"), pair.gradient},
                  std::move(attributes));
  }

  OperatorId adamw(const ParameterGradient& pair, double decay) {
    const TensorId first = state(pair, ".first_moment");
    const TensorId second = state(pair, ".second_moment");
    return update("adamw_update", {pair.parameter, first, second, pair.gradient},
                  {{"beta1", settings_.beta1},
                   {"beta2", settings_.beta2},
                   {"epsilon", settings_.epsilon},
                   {"weight_decay", decay}});
  }

  OperatorId lars(const ParameterGradient& pair, double decay) {
    return update("lars_update", {pair.parameter, state(pair, ".momentum"), pair.gradient},
                  {{"momentum", settings_.momentum},
                   {"weight_decay", decay},
                   {"trust", settings_.trust},
                   {"epsilon", settings_.epsilon}});
  }

  TensorId state(const ParameterGradient& pair, const std::string& suffix) {
    Tensor tensor;
    tensor.name = graph_.tensor(pair.parameter).name + suffix;
    tensor.type = graph_.tensor(pair.parameter).type;
    tensor.role = Role::optimizer_state;
    tensor.slice = graph_.tensor(pair.parameter).slice;
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
  if (gradients.empty()) return;
  Updates updates(graph, settings);
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
