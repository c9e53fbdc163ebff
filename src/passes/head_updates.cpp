#include "passes/head_updates.h"

#include <algorithm>
#include <utility>

#include "graph/margin_head.h"
#include "passes/gradient_exchange.h"

namespace millrace::passes {
namespace {

constexpr size_t kStatisticsInput = 1;  // among the inputs of margin_head_update
constexpr size_t kCentresInput = 5;

void append_all(std::vector<graph::TensorId>& inputs, const std::vector<graph::TensorId>& more) {
  inputs.insert(inputs.end(), more.begin(), more.end());
}

// Of the operators that update centres by this rule.
const char* suffix_of(graph::RuleKind kind) {
  if (kind == graph::RuleKind::plain) return "";
  return kind == graph::RuleKind::momentum ? "_momentum" : "_adamw";
}

}  // namespace

HeadUpdates::Rule HeadUpdates::rule_of(graph::OperatorId id) {
  const graph::Attributes head = graph_.op(id).attributes;
  const graph::TensorId centres = graph_.op(id).inputs.at(kCentresInput);
  const graph::OptimizerDefinition& row = settings_.row_of_centres();
  const bool without =
      row.kind == graph::RuleKind::momentum && head.number("sample_rate") < 1 &&
      head.integer("head_momentum") == static_cast<int64_t>(graph::HeadMomentum::none);
  Rule rule;
  if (without) {
    rule.rate_factor = 1 / (1 - settings_.momentum);
  } else {
    rule.suffix = suffix_of(row.kind);
    for (const std::string_view suffix : row.states) {
      rule.states.push_back(state(centres, std::string(suffix)));
    }
  }
  rule.rate_factor *= graph_.tensor(centres).rate;
  rule.state_count = static_cast<int64_t>(rule.states.size());
  rule.lazy =
      graph::wants_lazy_updates(head) && (rule.state_count > 0 || settings_.weight_decay > 0);
  if (!rule.lazy) return rule;
  add_clock(centres, rule.states);
  const graph::TensorId read = graph_.op(id).inputs.at(kStatisticsInput);
  graph::Operator& statistics = graph_.op(graph_.tensor(read).producer);
  append_all(statistics.inputs, rule.states);
  set(rule, statistics.attributes);
  return rule;
}

void HeadUpdates::set(const Rule& rule, graph::Attributes& attributes) const {
  attributes.set_all(attributes_of(settings_));
  attributes.set("rate_factor", rule.rate_factor);
  if (!rule.lazy) return;
  attributes.set("lazy", true);
  attributes.set("states", rule.state_count);
}

graph::TensorId HeadUpdates::state(graph::TensorId centres, const std::string& suffix) {
  const graph::Tensor& parameter = graph_.tensor(centres);
  graph::Tensor tensor;
  tensor.name = parameter.name + suffix;
  tensor.type = parameter.type;
  tensor.role = graph::Role::optimizer_state;
  tensor.slice = parameter.slice;
  return graph_.add_tensor(std::move(tensor));
}

void HeadUpdates::add_clock(graph::TensorId centres, std::vector<graph::TensorId>& states) {
  const graph::Tensor& parameter = graph_.tensor(centres);
  graph::Tensor current;
  current.name = parameter.name + std::string(graph::kHeadCurrentSuffix);
  current.type = {{parameter.type.shape[0]}, graph::DataType::s32};
  current.role = graph::Role::optimizer_state;
  current.slice = parameter.slice;
  graph::Tensor rates;
  rates.name = graph::kHeadRatesName;
  rates.type = {{graph::kHeadRates}, graph::DataType::f32};
  rates.role = graph::Role::optimizer_state;
  states.push_back(graph_.add_tensor(std::move(current)));
  states.push_back(graph_.add_tensor(std::move(rates)));
}

void HeadUpdates::complete(graph::OperatorId id) {
  const Rule rule = rule_of(id);
  graph::Operator& op = graph_.op(id);
  op.type += rule.suffix;
  append_all(op.inputs, rule.states);
  set(rule, op.attributes);
}

void HeadUpdates::defer(graph::OperatorId id) {
  Deferred head;
  head.rule = rule_of(id);
  graph::Operator& op = graph_.op(id);
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
void HeadUpdates::keep_rows(Deferred& head, graph::OperatorId id) {
  const int64_t rows = graph_.tensor(head.inputs[0]).type.shape[0] * options_.micro_batches;
  const int64_t width = graph_.tensor(head.inputs[2]).type.shape[1];
  const int64_t own = rows / options_.micro_batches;
  const int64_t labels = std::max(
      rows, graph_.tensor(head.inputs[3]).type.elements() - graph::sample_elements(own, 0));
  const graph::TensorType types[] = {
      {{rows, graph::kHeadStatistics}, graph::DataType::f32},
      {{rows, graph::kHeadStatistics}, graph::DataType::f32},
      {{rows, width}, graph::DataType::f32},
      {{graph::sample_elements(rows, labels)}, graph::DataType::s32}};
  const char* const names[] = {"gradients", "statistics", "embeddings", "sample"};
  std::vector<graph::TensorId> kept;
  for (size_t i = 0; i < 4; ++i) {
    graph::Tensor tensor;
    tensor.name = head.name + "/kept_" + names[i];
    tensor.type = types[i];
    tensor.role = graph::Role::accumulator;
    kept.push_back(graph_.add_tensor(std::move(tensor)));
  }
  std::vector<graph::TensorId> inputs = kept;
  append_all(inputs, head.inputs);
  const graph::OperatorId added = graph_.add_operator(
      "margin_head_keep", head.name + "/keep", std::move(inputs), {}, graph::Phase::backward);
  std::vector<graph::OperatorId> order = graph_.order();
  order.pop_back();
  order.insert(std::find(order.begin(), order.end(), id) + 1, added);
  graph_.set_order(std::move(order));
  head.inputs = kept;
}

// Of centres that are divided over the members every one has its share.
graph::TensorId HeadUpdates::add_squares(graph::TensorId sum) {
  for (const Deferred& head : deferred_) {
    std::vector<graph::TensorId> inputs = head.inputs;
    inputs.push_back(head.centres);
    if (head.rule.lazy) append_all(inputs, head.rule.states);
    graph::TensorId own = graph_.apply("margin_head_squares", head.name + "/squares",
                                       std::move(inputs), head.attributes, graph::Phase::update);
    if (options_.members > 1 && is_own(graph_, head.centres, options_)) {
      own = graph_.apply(
          "all_reduce", head.name + "/all_squares", {own},
          {{"member", int64_t{options_.member}}, {"members", int64_t{options_.members}}},
          graph::Phase::update);
    }
    sum = sum == graph::kNone ? own
                              : graph_.apply("add", head.name + "/sum_of_squares", {sum, own}, {},
                                             graph::Phase::update);
  }
  return sum;
}

void HeadUpdates::add_steps(graph::TensorId clip_scale, graph::TensorId skip) {
  for (const Deferred& head : deferred_) {
    std::vector<graph::TensorId> inputs = head.inputs;
    inputs.push_back(head.centres);
    append_all(inputs, head.rule.states);
    graph::Attributes attributes = head.attributes;
    attributes.set("has_clip", clip_scale != graph::kNone);
    if (clip_scale != graph::kNone) inputs.push_back(clip_scale);
    if (skip != graph::kNone) {
      attributes.set("has_skip", true);
      inputs.push_back(skip);
    }
    graph_.add_operator("margin_head_step" + head.rule.suffix,
                        graph_.tensor(head.centres).name + "/update", std::move(inputs),
                        std::move(attributes), graph::Phase::update);
  }
}

}  // namespace millrace::passes
