#include "passes/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "passes/gradient_exchange.h"
#include "passes/head_updates.h"

namespace millrace {
namespace {

class Updates {
 public:
  Updates(Graph& graph, const OptimizerSettings& settings, const UpdateOptions& options,
          HeadUpdates& heads)
      : graph_(graph), settings_(settings), options_(options), heads_(heads) {}

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
    squares_ = squares = heads_.add_squares(squares);
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

  // Of tensors that are divided over the members, what their steps are fitted to, in one exchange.
  void measure_parts(const std::vector<ParameterGradient>& gradients) {
    if (options_.members == 1) return;
    std::vector<ParameterGradient> divided;
    for (const ParameterGradient& pair : gradients) {
      const Trust trust = row_of(pair.parameter).trust;
      const bool is_slice = is_own(graph_, pair.parameter, options_);
      if (trust == Trust::none || !(is_slice || trust == Trust::step)) continue;
      if (!is_slice && !is_shared_out(pair.parameter)) continue;
      squares_at_[pair.parameter] = 2 * std::ssize(divided);
      divided.push_back(pair);
    }
    if (divided.empty()) return;
    const bool of_steps = row_of(divided.front().parameter).trust == Trust::step;
    const TensorId own = of_steps ? begin_steps(divided) : measure_slices(divided);
    part_squares_ = all_reduce("parts/all_squares", own);
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

  void step_heads() { heads_.add_steps(clip_scale_, skip_); }

  OperatorId add(const ParameterGradient& pair) {
    const bool has_begun = operands_.contains(pair.parameter);
    std::vector<TensorId> inputs = has_begun ? operands_.at(pair.parameter) : operands(pair);
    if (squares_at_.contains(pair.parameter)) inputs.push_back(part_squares_);
    return update(row_of(pair.parameter).update_type, std::move(inputs));
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

  const OptimizerDefinition& row_of(TensorId parameter) const {
    const OptimizerDefinition& chosen = optimizer_named(settings_.name);
    const bool replaced = is_vector(parameter) && !chosen.for_vectors.empty();
    return row_for(replaced ? optimizer_named(chosen.for_vectors) : chosen, settings_.momentum);
  }

  // Weights, states, gradient and perhaps a count of updates.
  std::vector<TensorId> operands(const ParameterGradient& pair) {
    const OptimizerDefinition& row = row_of(pair.parameter);
    std::vector<TensorId> inputs = {pair.parameter};
    for (const std::string_view suffix : row.states) {
      inputs.push_back(part_of_state(pair.parameter, std::string(suffix)));
    }
    inputs.push_back(pair.gradient);
    if (row.counts_updates) {
      const std::string name = graph_.tensor(pair.parameter).name + ".updates";
      inputs.push_back(held(name, 1, Role::optimizer_state));
    }
    return inputs;
  }

  TensorId measure_slices(const std::vector<ParameterGradient>& slices) {
    std::vector<TensorId> inputs;
    for (const ParameterGradient& pair : slices) {
      inputs.insert(inputs.end(), {pair.parameter, pair.gradient});
    }
    return graph_.apply("squares_of_each", "parts/squares", inputs, {}, Phase::update);
  }

  TensorId begin_steps(const std::vector<ParameterGradient>& parts) {
    const TensorId squares =
        held(fmt::format("parts/squares_{}", operands_.size()), 2 * std::ssize(parts));
    for (const ParameterGradient& pair : parts) {
      operands_[pair.parameter] = operands(pair);
      std::vector<TensorId> inputs = operands_[pair.parameter];
      inputs.push_back(squares);
      update(row_of(pair.parameter).moments_type, std::move(inputs));
    }
    return squares;
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

  OperatorId update(std::string_view type, std::vector<TensorId> inputs) {
    const TensorId parameter = inputs[0];
    const bool decays = !is_vector(parameter) || settings_.decay_all;
    Attributes attributes = attributes_of(settings_);
    attributes.set("weight_decay", decays ? settings_.weight_decay : 0.0);
    if (graph_.tensor(parameter).rate != 1) attributes.set("rate", graph_.tensor(parameter).rate);
    attributes.set("has_clip", clip_scale_ != kNone);
    if (is_shared_out(parameter)) {
      attributes.set("part", static_cast<int64_t>(options_.member));
      attributes.set("parts", static_cast<int64_t>(options_.members));
    }
    if (squares_at_.contains(parameter)) attributes.set("squares_at", squares_at_.at(parameter));
    if (clip_scale_ != kNone) inputs.push_back(clip_scale_);
    if (skip_ != kNone) {
      attributes.set("has_skip", true);
      inputs.push_back(skip_);
    }
    const bool begins = type == row_of(parameter).moments_type;
    const std::string name = graph_.tensor(parameter).name + (begins ? "/moments" : "/update");
    return graph_.add_operator(type, name, std::move(inputs), std::move(attributes), Phase::update);
  }

  Graph& graph_;
  const OptimizerSettings& settings_;
  const UpdateOptions& options_;
  HeadUpdates& heads_;
  TensorId squares_ = kNone;
  TensorId clip_scale_ = kNone;
  TensorId skip_ = kNone;
  TensorId part_squares_ = kNone;
  std::map<TensorId, int64_t> squares_at_;                   // in part_squares_
  std::map<TensorId, std::vector<TensorId>> operands_ = {};  // of steps that have begun
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
  HeadUpdates heads(graph, settings, options);
  Updates updates(graph, settings, options, heads);
  const bool clips = settings.clip_norm > 0;
  const bool defers = clips || options.check_overflow || options.accumulate;
  const std::vector<OperatorId> order = graph.order();
  for (const OperatorId id : order) {
    if (graph.op(id).type != "margin_head_update") continue;
    defers ? heads.defer(id) : heads.complete(id);
  }
  if (gradients.empty() && !heads.has_deferred()) return;
  if (options.members == 1 && !defers) return update_at_once(graph, gradients, updates);
  const bool whole = clips || optimizer_named(settings.name).trust == Trust::gradient;
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
    updates.measure_parts(ready[i]);
    for (const ParameterGradient& pair : ready[i]) {
      updates.add(pair);
      exchange.share(pair.parameter);
    }
  }
  updates.step_heads();
  exchange.finish();
}

}  // namespace millrace
