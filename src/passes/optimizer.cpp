#include "passes/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "graph/margin_head.h"
#include "graph/operator_definition.h"
#include "passes/gradient_exchange.h"
#include "passes/head_updates.h"

namespace millrace::passes {
namespace {

class Updates {
 public:
  Updates(graph::Graph& graph, const OptimizerSettings& settings, const UpdateOptions& options,
          HeadUpdates& heads)
      : graph_(graph), settings_(settings), options_(options), heads_(heads) {}

  // Sums of squares of gradients that every member has, and of those that are split over them.
  void measure_norm(const std::vector<ParameterGradient>& gradients) {
    std::vector<graph::TensorId> whole;
    std::vector<graph::TensorId> split;
    for (const ParameterGradient& pair : gradients) {
      if (!is_clipped(pair.parameter)) continue;
      const bool has_rest = options_.members > 1 && is_own(graph_, pair.parameter, options_);
      (has_rest ? split : whole).push_back(pair.gradient);
    }
    const auto squares_of = [&](const std::vector<graph::TensorId>& tensors, const char* name) {
      return graph_.apply("sum_of_squares", name, tensors, {}, graph::Phase::update);
    };
    graph::TensorId squares = graph::kNone;
    if (!whole.empty()) squares = squares_of(whole, "gradients/sum_of_squares");
    if (!split.empty()) {
      const graph::TensorId own = squares_of(split, "gradients/own_squares");
      squares = sum(squares, all_reduce("gradients/split_squares", own), "gradients/squares");
    }
    if (!settings_.clip_backbone) squares = heads_.add_squares(squares);
    squares_ = squares;
    if (!options_.with_stages || squares == graph::kNone) return;
    squares_ = held(std::string(kSquares), 1);
    graph_.add_operator("keep_squares", "gradients/keep_squares", {squares_, squares}, {},
                        graph::Phase::update);
  }

  // Behind measure_norm, and behind look_for_overflow.
  void limit_norm() {
    if (squares_ == graph::kNone) return;
    clip_scale_ = graph_.apply("clip_scale", "gradients/clip_scale", {squares_},
                               {{"max_norm", settings_.clip_norm}}, graph::Phase::update);
  }

  // Of tensors that are divided over the members, what their steps are fitted to, in one exchange.
  void measure_parts(const std::vector<ParameterGradient>& gradients) {
    if (options_.members == 1) return;
    std::vector<ParameterGradient> divided;
    for (const ParameterGradient& pair : gradients) {
      const graph::Trust trust = row_of(pair.parameter).trust;
      const bool is_slice = is_own(graph_, pair.parameter, options_);
      if (trust == graph::Trust::none || !(is_slice || trust == graph::Trust::step)) continue;
      if (!is_slice && !is_shared_out(pair.parameter)) continue;
      squares_at_[pair.parameter] = 2 * std::ssize(divided);
      divided.push_back(pair);
    }
    if (divided.empty()) return;
    const bool of_steps = row_of(divided.front().parameter).trust == graph::Trust::step;
    const graph::TensorId own = of_steps ? begin_steps(divided) : measure_slices(divided);
    part_squares_ = all_reduce("parts/all_squares", own);
  }

  // Where gradients are about to be summed over members: looks at one that the backward pass makes
  // late, as it shows most of what overflows on this member before it.
  void probe(const std::vector<ParameterGradient>& gradients) {
    constexpr int64_t kMostElements = 1 << 18;
    const std::vector<graph::OperatorId> before = graph_.order();
    size_t place = 0;
    graph::TensorId late = graph::kNone;
    for (const ParameterGradient& pair : gradients) {
      const graph::Tensor& gradient = graph_.tensor(pair.gradient);
      if (gradient.type.elements() > kMostElements) continue;
      const auto made = std::find(before.begin(), before.end(), gradient.producer);
      if (made == before.end() || made - before.begin() < static_cast<ptrdiff_t>(place)) continue;
      place = static_cast<size_t>(made - before.begin());
      late = pair.gradient;
    }
    if (late == graph::kNone) return;
    const graph::OperatorId added = graph_.add_operator(
        "overflow_probe", "gradients/overflow_probe", {held(std::string(kOverflowProbe), 1), late},
        {}, graph::Phase::backward);
    std::vector<graph::OperatorId> order = before;
    order.insert(order.begin() + static_cast<ptrdiff_t>(place) + 1, added);
    graph_.set_order(std::move(order));
  }

  // Behind measure_norm, whose pass over the gradients it makes use of.
  void look_for_overflow(const std::vector<ParameterGradient>& gradients) {
    skip_ = held(std::string(kOverflowFlag), 2);
    std::vector<graph::TensorId> inputs = {skip_};
    if (squares_ != graph::kNone) inputs.push_back(squares_);
    std::string names;
    for (const ParameterGradient& pair : gradients) {
      inputs.push_back(pair.gradient);
      names += (names.empty() ? "" : " ") + graph_.tensor(pair.parameter).name;
    }
    graph_.add_operator("overflow_check", "gradients/overflow_check", std::move(inputs),
                        {{"has_squares", squares_ != graph::kNone},
                         {"members", int64_t{options_.members}},
                         {"parameters", names}},
                        graph::Phase::update);
  }

  void step_heads() {
    heads_.add_steps(settings_.clip_backbone ? graph::kNone : clip_scale_, skip_);
  }

  graph::OperatorId add(const ParameterGradient& pair) {
    const bool has_begun = operands_.contains(pair.parameter);
    std::vector<graph::TensorId> inputs = has_begun ? operands_.at(pair.parameter) : operands(pair);
    if (squares_at_.contains(pair.parameter)) inputs.push_back(part_squares_);
    return update(row_of(pair.parameter).update_type, std::move(inputs));
  }

 private:
  bool is_clipped(graph::TensorId parameter) const {
    return !settings_.clip_backbone ||
           !graph_.tensor(parameter).name.starts_with(graph::kHeadPrefix);
  }

  bool is_vector(graph::TensorId parameter) const {
    return graph_.tensor(parameter).type.shape.size() <= 1;
  }

  graph::TensorId all_reduce(const std::string& name, graph::TensorId own) {
    return graph_.apply(
        "all_reduce", name, {own},
        {{"member", int64_t{options_.member}}, {"members", int64_t{options_.members}}},
        graph::Phase::update);
  }

  graph::TensorId sum(graph::TensorId before, graph::TensorId added, const std::string& name) {
    return before == graph::kNone
               ? added
               : graph_.apply("add", name, {before, added}, {}, graph::Phase::update);
  }

  graph::TensorId held(std::string name, int64_t elements,
                       graph::Role role = graph::Role::accumulator) {
    graph::Tensor tensor;
    tensor.name = std::move(name);
    tensor.type = {{elements}, graph::DataType::f32};
    tensor.role = role;
    return graph_.add_tensor(std::move(tensor));
  }

  const graph::OptimizerDefinition& row_of(graph::TensorId parameter) const {
    const graph::OptimizerDefinition& chosen = graph::optimizer_named(settings_.name);
    const bool replaced = is_vector(parameter) && !chosen.for_vectors.empty();
    return graph::row_for(replaced ? graph::optimizer_named(chosen.for_vectors) : chosen,
                          settings_.momentum);
  }

  // Weights, states, gradient and perhaps a count of updates.
  std::vector<graph::TensorId> operands(const ParameterGradient& pair) {
    const graph::OptimizerDefinition& row = row_of(pair.parameter);
    std::vector<graph::TensorId> inputs = {pair.parameter};
    for (const std::string_view suffix : row.states) {
      inputs.push_back(part_of_state(pair.parameter, std::string(suffix)));
    }
    inputs.push_back(pair.gradient);
    if (row.counts_updates) {
      const std::string name = graph_.tensor(pair.parameter).name + ".updates";
      inputs.push_back(held(name, 1, graph::Role::optimizer_state));
    }
    return inputs;
  }

  graph::TensorId measure_slices(const std::vector<ParameterGradient>& slices) {
    std::vector<graph::TensorId> inputs;
    for (const ParameterGradient& pair : slices) {
      inputs.insert(inputs.end(), {pair.parameter, pair.gradient});
    }
    return graph_.apply("squares_of_each", "parts/squares", inputs, {}, graph::Phase::update);
  }

  graph::TensorId begin_steps(const std::vector<ParameterGradient>& parts) {
    const graph::TensorId squares =
        held(fmt::format("parts/squares_{}", operands_.size()), 2 * std::ssize(parts));
    for (const ParameterGradient& pair : parts) {
      operands_[pair.parameter] = operands(pair);
      std::vector<graph::TensorId> inputs = operands_[pair.parameter];
      inputs.push_back(squares);
      update(row_of(pair.parameter).moments_type, std::move(inputs));
    }
    return squares;
  }

  bool is_shared_out(graph::TensorId parameter) const {
    return options_.share_state && !is_own(graph_, parameter, options_);
  }

  graph::TensorId state(graph::TensorId id, const std::string& suffix) {
    const graph::Tensor& parameter = graph_.tensor(id);
    graph::Tensor tensor;
    tensor.name = parameter.name + suffix;
    tensor.type = parameter.type;
    tensor.role = graph::Role::optimizer_state;
    tensor.slice = parameter.slice;
    return graph_.add_tensor(std::move(tensor));
  }

  // Of a parameter whose gradient the optimizer gets; perhaps only a part of it.
  graph::TensorId part_of_state(graph::TensorId parameter, const std::string& suffix) {
    const graph::TensorId added = state(parameter, suffix);
    if (is_shared_out(parameter)) graph_.tensor(added).part = {options_.member, options_.members};
    return added;
  }

  graph::OperatorId update(std::string_view type, std::vector<graph::TensorId> inputs) {
    const graph::TensorId parameter = inputs[0];
    const bool decays = !is_vector(parameter) || settings_.decay_all;
    graph::Attributes attributes = attributes_of(settings_);
    attributes.set("weight_decay", decays ? settings_.weight_decay : 0.0);
    if (graph_.tensor(parameter).rate != 1) attributes.set("rate", graph_.tensor(parameter).rate);
    const bool has_clip = clip_scale_ != graph::kNone && is_clipped(parameter);
    attributes.set("has_clip", has_clip);
    if (is_shared_out(parameter)) {
      attributes.set("part", static_cast<int64_t>(options_.member));
      attributes.set("parts", static_cast<int64_t>(options_.members));
    }
    if (squares_at_.contains(parameter)) attributes.set("squares_at", squares_at_.at(parameter));
    if (has_clip) inputs.push_back(clip_scale_);
    if (skip_ != graph::kNone) {
      attributes.set("has_skip", true);
      inputs.push_back(skip_);
    }
    const bool begins = type == row_of(parameter).moments_type;
    const std::string name = graph_.tensor(parameter).name + (begins ? "/moments" : "/update");
    return graph_.add_operator(type, name, std::move(inputs), std::move(attributes),
                               graph::Phase::update);
  }

  graph::Graph& graph_;
  const OptimizerSettings& settings_;
  const UpdateOptions& options_;
  HeadUpdates& heads_;
  graph::TensorId squares_ = graph::kNone;
  graph::TensorId clip_scale_ = graph::kNone;
  graph::TensorId skip_ = graph::kNone;
  graph::TensorId part_squares_ = graph::kNone;
  std::map<graph::TensorId, int64_t> squares_at_;  // in part_squares_
  std::map<graph::TensorId, std::vector<graph::TensorId>> operands_ =
      {};  // of steps that have begun
};

// Puts each update behind the last operator that makes its gradient or reads its parameter.
void update_at_once(graph::Graph& graph, const std::vector<ParameterGradient>& gradients,
                    Updates& updates) {
  const std::vector<graph::OperatorId> before = graph.order();
  std::vector<size_t> last_use(static_cast<size_t>(graph.tensor_count()), 0);
  for (size_t i = 0; i < before.size(); ++i) {
    for (graph::TensorId id : graph.op(before[i]).inputs) last_use[static_cast<size_t>(id)] = i;
    for (graph::TensorId id : graph.op(before[i]).outputs) last_use[static_cast<size_t>(id)] = i;
  }
  std::vector<std::vector<graph::OperatorId>> behind(before.size());
  for (const ParameterGradient& pair : gradients) {
    const size_t place = std::max(last_use[static_cast<size_t>(pair.parameter)],
                                  last_use[static_cast<size_t>(pair.gradient)]);
    behind[place].push_back(updates.add(pair));
  }
  std::vector<graph::OperatorId> order;
  for (size_t i = 0; i < before.size(); ++i) {
    order.push_back(before[i]);
    order.insert(order.end(), behind[i].begin(), behind[i].end());
  }
  graph.set_order(std::move(order));
}

}  // namespace

void add_updates(graph::Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings, const UpdateOptions& options) {
  HeadUpdates heads(graph, settings, options);
  Updates updates(graph, settings, options, heads);
  const bool clips = settings.clip_norm > 0;
  const bool defers = clips || options.check_overflow || options.accumulate;
  const std::vector<graph::OperatorId> order = graph.order();
  for (const graph::OperatorId id : order) {
    if (!graph::definition_of(graph.op(id)).takes_rule) continue;
    const bool waits =
        defers && !(settings.clip_backbone && !options.check_overflow && !options.accumulate);
    waits ? heads.defer(id) : heads.complete(id);
  }
  if (gradients.empty() && !heads.has_deferred()) return;
  if (options.members == 1 && !defers) return update_at_once(graph, gradients, updates);
  const bool whole = clips || graph::optimizer_named(settings.name).trust == graph::Trust::gradient;
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

}  // namespace millrace::passes
