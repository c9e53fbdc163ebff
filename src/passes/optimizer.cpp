#include "passes/optimizer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "passes/gradient_exchange.h"

namespace millrace {
namespace {

class Updates {
 public:
  Updates(Graph& graph, const OptimizerSettings& settings, const UpdateOptions& options)
      : graph_(graph), settings_(settings), options_(options) {}

  // Sums of squares of gradients that every member has, and of those that are split over them.
  void measure_norm(const std::vector<ParameterGradient>& gradients) {
    std::vector<TensorId> whole;
    std::vector<TensorId> split;
    for (const ParameterGradient& pair : gradients) {
      const bool has_rest = options_.members > 1 && is_own(graph_, pair.parameter, options_);
      (has_rest ? split : whole).push_back(pair.gradient);
    }
    const auto squares_of = [&](const std::vector<TensorId>& tensors, const char* name) {
      return graph_.apply("sum_of_squares", name, tensors, {}, Phase::update);
    };
    TensorId squares = kNone;
    if (!whole.empty()) squares = squares_of(whole, "gradients/sum_of_squares");
    if (!split.empty()) {
      const TensorId own = squares_of(split, "gradients/own_squares");
      squares = sum(squares, all_reduce("gradients/split_squares", own), "gradients/squares");
    }
    for (const DeferredHead& head : heads_) squares = with_squares(squares, head);
    squares_ = squares;
    if (!options_.with_stages) return;
    squares_ = held(std::string(kSquares), 1);
    graph_.add_operator("keep_squares", "gradients/keep_squares", {squares_, squares}, {},
                        Phase::update);
  }

  // Behind measure_norm, and behind look_for_overflow.
  void limit_norm() {
    clip_scale_ = graph_.apply("clip_scale", "gradients/clip_scale", {squares_},
                               {{"max_norm", settings_.clip_norm}}, Phase::update);
  }

  // Sums of squares of weights and gradients of which every member has a slice, in one exchange.
  void measure_slices(const std::vector<ParameterGradient>& gradients) {
    if (settings_.kind != OptimizerSettings::Kind::lars || options_.members == 1) return;
    std::vector<TensorId> inputs;
    for (const ParameterGradient& pair : gradients) {
      if (!is_own(graph_, pair.parameter, options_) || is_vector(pair.parameter)) continue;
      squares_at_[pair.parameter] = std::ssize(inputs);
      inputs.insert(inputs.end(), {pair.parameter, pair.gradient});
    }
    if (inputs.empty()) return;
    const TensorId own =
        graph_.apply("squares_of_each", "slices/squares", inputs, {}, Phase::update);
    slice_squares_ = all_reduce("slices/all_squares", own);
  }

  // Where gradients are about to be summed over members: looks at one that the backward pass makes
  // late, as it shows most of what overflows on this member before it.
  void probe(const std::vector<ParameterGradient>& gradients) {
    constexpr int64_t kMostElements = 1 << 18;
    const std::vector<OperatorId> before = graph_.order();
    size_t place = 0;
    TensorId late = kNone;
    for (const ParameterGradient& pair : gradients) {
      const Tensor& gradient = graph_.tensor(pair.gradient);
      if (gradient.type.elements() > kMostElements) continue;
      const auto made = std::find(before.begin(), before.end(), gradient.producer);
      if (made == before.end() || made - before.begin() < static_cast<ptrdiff_t>(place)) continue;
      place = static_cast<size_t>(made - before.begin());
      late = pair.gradient;
    }
    if (late == kNone) return;
    const OperatorId added =
        graph_.add_operator("overflow_probe", "gradients/overflow_probe",
                            {held(std::string(kOverflowProbe), 1), late}, {}, Phase::backward);
    std::vector<OperatorId> order = before;
    order.insert(order.begin() + static_cast<ptrdiff_t>(place) + 1, added);
    graph_.set_order(std::move(order));
  }

  // Behind measure_norm, whose pass over the gradients it makes use of.
  void look_for_overflow(const std::vector<ParameterGradient>& gradients) {
    skip_ = held(std::string(kOverflowFlag), 2);
    std::vector<TensorId> inputs = {skip_};
    if (squares_ != kNone) inputs.push_back(squares_);
    std::string names;
    for (const ParameterGradient& pair : gradients) {
      inputs.push_back(pair.gradient);
      names += (names.empty() ? "" : " ") + graph_.tensor(pair.parameter).name;
    }
    graph_.add_operator("overflow_check", "gradients/overflow_check", std::move(inputs),
                        {{"has_squares", squares_ != kNone},
                         {"members", int64_t{options_.members}},
                         {"parameters", names}},
                        Phase::update);
  }

  // Settings and state of a head that updates its own centres; LARS treats it as SGD does.
  void complete_head(OperatorId id) {
    Operator& op = graph_.op(id);
    const auto [kind, states] = head_states(op.inputs.at(kCentres));
    Operator& completed = graph_.op(id);  // states are new tensors
    completed.type += kind;
    completed.inputs.insert(completed.inputs.end(), states.begin(), states.end());
    set_head_attributes(completed.attributes);
  }

  // Leaves of a head's operator in the backward pass the gradient of the embeddings; the centres
  // take their step with all other parameters (step_heads).
  void defer_head(OperatorId id) {
    const Operator& op = graph_.op(id);
    DeferredHead head;
    head.name = op.name;
    head.attributes = op.attributes;
    head.inputs = {op.inputs[0], op.inputs[1], op.inputs[2], op.inputs[3]};
    head.centres = op.inputs[kCentres];
    graph_.op(id).type = "margin_head_gradient";
    if (options_.accumulate) keep_rows(head, id);
    heads_.push_back(std::move(head));
  }

  void step_heads() {
    for (const DeferredHead& head : heads_) {
      const auto [kind, states] = head_states(head.centres);
      std::vector<TensorId> inputs = head.inputs;
      inputs.push_back(head.centres);
      inputs.insert(inputs.end(), states.begin(), states.end());
      Attributes attributes = head.attributes;
      set_head_attributes(attributes);
      attributes.set("has_clip", clip_scale_ != kNone);
      if (clip_scale_ != kNone) inputs.push_back(clip_scale_);
      if (skip_ != kNone) {
        attributes.set("has_skip", true);
        inputs.push_back(skip_);
      }
      graph_.add_operator("margin_head_step" + std::string(kind),
                          graph_.tensor(head.centres).name + "/update", std::move(inputs),
                          std::move(attributes), Phase::update);
    }
  }

  bool has_deferred_heads() const { return !heads_.empty(); }

  OperatorId add(const ParameterGradient& pair) {
    const bool vector = is_vector(pair.parameter);
    const double decay = vector && !settings_.decay_all ? 0.0 : settings_.weight_decay;
    if (settings_.kind == OptimizerSettings::Kind::adamw) return adamw(pair, decay);
    if (settings_.kind == OptimizerSettings::Kind::lars && !vector) return lars(pair, decay);
    return sgd(pair, decay);
  }

 private:
  bool is_vector(TensorId parameter) const {
    return graph_.tensor(parameter).type.shape.size() <= 1;
  }

  TensorId all_reduce(const std::string& name, TensorId own) {
    return graph_.apply(
        "all_reduce", name, {own},
        {{"member", int64_t{options_.member}}, {"members", int64_t{options_.members}}},
        Phase::update);
  }

  TensorId sum(TensorId before, TensorId added, const std::string& name) {
    return before == kNone ? added : graph_.apply("add", name, {before, added}, {}, Phase::update);
  }

  TensorId held(std::string name, int64_t elements, Role role = Role::accumulator) {
    Tensor tensor;
    tensor.name = std::move(name);
    tensor.type = {{elements}, DataType::f32};
    tensor.role = role;
    return graph_.add_tensor(std::move(tensor));
  }

  OperatorId sgd(const ParameterGradient& pair, double decay) {
    Attributes attributes = {{"momentum", settings_.momentum},
                             {"weight_decay", decay},
                             {"nesterov", settings_.nesterov},
                             {"dampening", 0.0}};
    if (settings_.momentum == 0) {
      return update("sgd_plain_update", {pair.parameter, pair.gradient}, std::move(attributes));
    }
    return update("sgd_update",
                  {pair.parameter, part_of_state(pair.parameter, ".momentum"), pair.gradient},
                  std::move(attributes));
  }

  OperatorId adamw(const ParameterGradient& pair, double decay) {
    const TensorId first = part_of_state(pair.parameter, ".first_moment");
    const TensorId second = part_of_state(pair.parameter, ".second_moment");
    const TensorId updates =
        held(graph_.tensor(pair.parameter).name + ".updates", 1, Role::optimizer_state);
    return update("adamw_update", {pair.parameter, first, second, pair.gradient, updates},
                  {{"beta1", settings_.beta1},
                   {"beta2", settings_.beta2},
                   {"epsilon", settings_.epsilon},
                   {"weight_decay", decay}});
  }

  OperatorId lars(const ParameterGradient& pair, double decay) {
    Attributes attributes = {{"momentum", settings_.momentum},
                             {"weight_decay", decay},
                             {"trust", settings_.trust},
                             {"epsilon", settings_.epsilon}};
    const TensorId momentum = part_of_state(pair.parameter, ".momentum");
    std::vector<TensorId> inputs = {pair.parameter, momentum, pair.gradient};
    if (squares_at_.contains(pair.parameter)) {
      attributes.set("squares_at", squares_at_.at(pair.parameter));
      inputs.push_back(slice_squares_);
    }
    return update("lars_update", std::move(inputs), std::move(attributes));
  }

  static constexpr size_t kCentres = 5;  // among the inputs of margin_head_update

  struct DeferredHead {
    std::string name;
    Attributes attributes;
    std::vector<TensorId> inputs;  // gradient of the statistics, statistics, embeddings, sample
    TensorId centres = kNone;
  };

  std::pair<std::string_view, std::vector<TensorId>> head_states(TensorId centres) {
    if (settings_.kind == OptimizerSettings::Kind::adamw) {
      return {"_adamw", {state(centres, ".first_moment"), state(centres, ".second_moment")}};
    }
    if (settings_.momentum == 0) return {"", {}};
    return {"_momentum", {state(centres, ".momentum")}};
  }

  void set_head_attributes(Attributes& attributes) const {
    attributes.set("weight_decay", settings_.weight_decay);
    attributes.set("momentum", settings_.momentum);
    attributes.set("nesterov", settings_.nesterov);
    attributes.set("beta1", settings_.beta1);
    attributes.set("beta2", settings_.beta2);
    attributes.set("epsilon", settings_.epsilon);
  }

  // Copies what the step needs of a micro-batch, behind the operator that makes the gradient.
  void keep_rows(DeferredHead& head, OperatorId id) {
    const int64_t rows = graph_.tensor(head.inputs[0]).type.shape[0] * options_.micro_batches;
    const int64_t width = graph_.tensor(head.inputs[2]).type.shape[1];
    const TensorType types[] = {{{rows, 3}, DataType::f32},
                                {{rows, 3}, DataType::f32},
                                {{rows, width}, DataType::f32},
                                {{4 + 2 * rows}, DataType::s32}};
    const char* const names[] = {"gradients", "statistics", "embeddings", "sample"};
    std::vector<TensorId> kept;
    for (size_t i = 0; i < 4; ++i) {
      Tensor tensor;
      tensor.name = head.name + "/kept_" + names[i];
      tensor.type = types[i];
      tensor.role = Role::accumulator;
      kept.push_back(graph_.add_tensor(std::move(tensor)));
    }
    std::vector<TensorId> inputs = kept;
    inputs.insert(inputs.end(), head.inputs.begin(), head.inputs.end());
    const OperatorId added = graph_.add_operator("margin_head_keep", head.name + "/keep",
                                                 std::move(inputs), {}, Phase::backward);
    std::vector<OperatorId> order = graph_.order();
    order.pop_back();
    order.insert(std::find(order.begin(), order.end(), id) + 1, added);
    graph_.set_order(std::move(order));
    head.inputs = kept;
  }

  // Of centres that are divided over the members every one has its share.
  TensorId with_squares(TensorId before, const DeferredHead& head) {
    std::vector<TensorId> inputs = head.inputs;
    inputs.push_back(head.centres);
    TensorId own = graph_.apply("margin_head_squares", head.name + "/squares", std::move(inputs),
                                head.attributes, Phase::update);
    if (options_.members > 1 && is_own(graph_, head.centres, options_)) {
      own = all_reduce(head.name + "/all_squares", own);
    }
    return sum(before, own, head.name + "/sum_of_squares");
  }

  bool is_shared_out(TensorId parameter) const {
    return options_.share_state && !is_own(graph_, parameter, options_);
  }

  TensorId state(TensorId id, const std::string& suffix) {
    const Tensor& parameter = graph_.tensor(id);
    Tensor tensor;
    tensor.name = parameter.name + suffix;
    tensor.type = parameter.type;
    tensor.role = Role::optimizer_state;
    tensor.slice = parameter.slice;
    return graph_.add_tensor(std::move(tensor));
  }

  // Of a parameter whose gradient the optimizer gets; perhaps only a part of it.
  TensorId part_of_state(TensorId parameter, const std::string& suffix) {
    const TensorId added = state(parameter, suffix);
    if (is_shared_out(parameter)) graph_.tensor(added).part = {options_.member, options_.members};
    return added;
  }

  OperatorId update(std::string_view type, std::vector<TensorId> inputs, Attributes attributes) {
    const std::string name = graph_.tensor(inputs[0]).name + "/update";
    attributes.set("has_clip", clip_scale_ != kNone);
    if (is_shared_out(inputs[0])) {
      attributes.set("part", static_cast<int64_t>(options_.member));
      attributes.set("parts", static_cast<int64_t>(options_.members));
    }
    if (clip_scale_ != kNone) inputs.push_back(clip_scale_);
    if (skip_ != kNone) {
      attributes.set("has_skip", true);
      inputs.push_back(skip_);
    }
    return graph_.add_operator(type, name, std::move(inputs), std::move(attributes), Phase::update);
  }

  Graph& graph_;
  const OptimizerSettings& settings_;
  const UpdateOptions& options_;
  TensorId squares_ = kNone;
  TensorId clip_scale_ = kNone;
  TensorId skip_ = kNone;
  TensorId slice_squares_ = kNone;
  std::map<TensorId, int64_t> squares_at_;  // in slice_squares_
  std::vector<DeferredHead> heads_;
};

// Puts each update behind the last operator that makes its gradient or reads its parameter.
void update_at_once(Graph& graph, const std::vector<ParameterGradient>& gradients,
                    Updates& updates) {
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

}  // namespace

void add_updates(Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings, const UpdateOptions& options) {
  Updates updates(graph, settings, options);
  const bool clips = settings.clip_norm > 0;
  const bool defers = clips || options.check_overflow || options.accumulate;
  const std::vector<OperatorId> order = graph.order();
  for (const OperatorId id : order) {
    if (graph.op(id).type != "margin_head_update") continue;
    defers ? updates.defer_head(id) : updates.complete_head(id);
  }
  if (gradients.empty() && !updates.has_deferred_heads()) return;
  if (options.members == 1 && !defers) return update_at_once(graph, gradients, updates);
  const bool whole = clips || settings.kind == OptimizerSettings::Kind::lars;
  if (options.check_overflow && options.members > 1) updates.probe(gradients);
  GradientExchange exchange(graph, gradients, options, whole);
  std::vector<std::vector<ParameterGradient>> ready;
  if (clips || options.check_overflow) {
    std::vector<ParameterGradient> all;
    while (exchange.more()) {
      ready.push_back(exchange.next());
      all.insert(all.end(), ready.back().begin(), ready.back().end());
    }
    if (clips) updates.measure_norm(all);
    if (options.check_overflow) updates.look_for_overflow(all);
    if (clips) updates.limit_norm();
  }
  for (size_t i = 0; i < ready.size() || exchange.more(); ++i) {
    if (i == ready.size()) ready.push_back(exchange.next());
    updates.measure_slices(ready[i]);
    for (const ParameterGradient& pair : ready[i]) {
      updates.add(pair);
      exchange.share(pair.parameter);
    }
  }
  updates.step_heads();
  exchange.finish();
}

}  // namespace millrace
