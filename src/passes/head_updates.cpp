#include "passes/head_updates.h"

#include <algorithm>
#include <utility>

#include "graph/margin_head.h"
#include "passes/gradient_exchange.h"

namespace millrace {
namespace {

constexpr size_t kStatisticsInput = 1;  // among the inputs of margin_head_update
constexpr size_t kCentresInput = 5;

void append_all(std::vector<TensorId>& inputs, const std::vector<TensorId>& more) {
  inputs.insert(inputs.end(), more.begin(), more.end());
}

// Of the operators that update centres by this rule.
const char* suffix_of(RuleKind kind) {
  if (kind == RuleKind::plain) return "";
  return kind == RuleKind::momentum ? "_momentum" : "_adamw";
}

}  // namespace

HeadUpdates::Rule HeadUpdates::rule_of(OperatorId id) {
  const Attributes head = graph_.op(id).attributes;
  const TensorId centres = graph_.op(id).inputs.at(kCentresInput);
  const OptimizerDefinition& row = settings_.row_of_centres();
  const bool without = row.kind == RuleKind::momentum && head.number("sample_rate") < 1 &&
                       head.integer("head_momentum") == static_cast<int64_t>(HeadMomentum::none);
  Rule rule;
  if (without) {
    rule.rate_factor = 1 / (1 - settings_.momentum);
  } else {
    rule.suffix = suffix_of(row.kind);
    for (const std::string_view suffix : row.states) {
      rule.states.push_back(state(centres, std::string(suffix)));
    }
  }
  rule.state_count = static_cast<int64_t>(rule.states.size());
  rule.lazy = wants_lazy_updates(head) && (rule.state_count > 0 || settings_.weight_decay > 0);
  if (!rule.lazy) return rule;
  add_clock(centres, rule.states);
  const TensorId read = graph_.op(id).inputs.at(kStatisticsInput);
  Operator& statistics = graph_.op(graph_.tensor(read).producer);
  append_all(statistics.inputs, rule.states);
  set(rule, statistics.attributes);
  return rule;
}

void HeadUpdates::set(const Rule& rule, Attributes& attributes) const {
  attributes.set_all(attributes_of(settings_));
  attributes.set("rate_factor", rule.rate_factor);
  if (!rule.lazy) return;
  attributes.set("lazy", true);
  attributes.set("states", rule.state_count);
}

TensorId HeadUpdates::state(TensorId centres, const std::string& suffix) {
  const Tensor& parameter = graph_.tensor(centres);
  Tensor tensor;
  tensor.name = parameter.name + suffix;
  tensor.type = parameter.type;
  tensor.role = Role::optimizer_state;
  tensor.slice = parameter.slice;
  return graph_.add_tensor(std::move(tensor));
}

void HeadUpdates::add_clock(TensorId centres, std::vector<TensorId>& states) {
  const Tensor& parameter = graph_.tensor(centres);
  Tensor current;
  current.name = parameter.name + std::string(kHeadCurrentSuffix);
  current.type = {{parameter.type.shape[0]}, DataType::s32};
  current.role = Role::optimizer_state;
  current.slice = parameter.slice;
  Tensor rates;
  rates.name = kHeadRatesName;
  rates.type = {{kHeadRates}, DataType::f32};
  rates.role = Role::optimizer_state;
  states.push_back(graph_.add_tensor(std::move(current)));
  states.push_back(graph_.add_tensor(std::move(rates)));
}

void HeadUpdates::complete(OperatorId id) {
  const Rule rule = rule_of(id);
  Operator& op = graph_.op(id);
  op.type += rule.suffix;
  append_all(op.inputs, rule.states);
  set(rule, op.attributes);
}

void HeadUpdates::defer(OperatorId id) {
  Deferred head;
  head.rule = rule_of(id);
  Operator& op = graph_.op(id);
  head.name = op.name;
  head.inputs = {op.inputs[0], op.inputs[kStatisticsInput], op.inputs[2], op.inputs[3]};
  head.centres = op.inputs[kCentresInput];
  op.type = "margin_head_gradient";
  if (head.rule.lazy) append_all(op.inputs, head.rule.states);
  set(head.rule, op.attributes);
  head.attributes = op.attributes;
  if (options_.accumulate) keep_rows(head, id);
  deferred_.push_back(std::move(head));
}

// Copies what the step needs of a micro-batch, behind the operator that makes the gradient.
void HeadUpdates::keep_rows(Deferred& head, OperatorId id) {
  const int64_t rows = graph_.tensor(head.inputs[0]).type.shape[0] * options_.micro_batches;
  const int64_t width = graph_.tensor(head.inputs[2]).type.shape[1];
  const TensorType types[] = {{{rows, kHeadStatistics}, DataType::f32},
                              {{rows, kHeadStatistics}, DataType::f32},
                              {{rows, width}, DataType::f32},
                              {{sample_elements(rows)}, DataType::s32}};
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
  append_all(inputs, head.inputs);
  const OperatorId added = graph_.add_operator("margin_head_keep", head.name + "/keep",
                                               std::move(inputs), {}, Phase::backward);
  std::vector<OperatorId> order = graph_.order();
  order.pop_back();
  order.insert(std::find(order.begin(), order.end(), id) + 1, added);
  graph_.set_order(std::move(order));
  head.inputs = kept;
}

// Of centres that are divided over the members every one has its share.
TensorId HeadUpdates::add_squares(TensorId sum) {
  for (const Deferred& head : deferred_) {
    std::vector<TensorId> inputs = head.inputs;
    inputs.push_back(head.centres);
    if (head.rule.lazy) append_all(inputs, head.rule.states);
    TensorId own = graph_.apply("margin_head_squares", head.name + "/squares", std::move(inputs),
                                head.attributes, Phase::update);
    if (options_.members > 1 && is_own(graph_, head.centres, options_)) {
      own = graph_.apply(
          "all_reduce", head.name + "/all_squares", {own},
          {{"member", int64_t{options_.member}}, {"members", int64_t{options_.members}}},
          Phase::update);
    }
    sum = sum == kNone
              ? own
              : graph_.apply("add", head.name + "/sum_of_squares", {sum, own}, {}, Phase::update);
  }
  return sum;
}

void HeadUpdates::add_steps(TensorId clip_scale, TensorId skip) {
  for (const Deferred& head : deferred_) {
    std::vector<TensorId> inputs = head.inputs;
    inputs.push_back(head.centres);
    append_all(inputs, head.rule.states);
    Attributes attributes = head.attributes;
    attributes.set("has_clip", clip_scale != kNone);
    if (clip_scale != kNone) inputs.push_back(clip_scale);
    if (skip != kNone) {
      attributes.set("has_skip", true);
      inputs.push_back(skip);
    }
    graph_.add_operator("margin_head_step" + head.rule.suffix,
                        graph_.tensor(head.centres).name + "/update", std::move(inputs),
                        std::move(attributes), Phase::update);
  }
}

}  // namespace millrace
