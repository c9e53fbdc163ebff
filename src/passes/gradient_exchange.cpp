#include "passes/gradient_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/exchange.h"
#include "passes/rewrite.h"

namespace millrace::passes {
namespace {

// No layout in use pads an axis beyond a multiple of this.
constexpr int64_t kPadding = 16;

int64_t padded_elements(const graph::Shape& shape) {
  int64_t count = 1;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    count *= axis < 2 ? (shape[axis] + kPadding - 1) / kPadding * kPadding : shape[axis];
  }
  return count;
}

}  // namespace

bool is_own(const graph::Graph& graph, graph::TensorId parameter, const UpdateOptions& options) {
  return options.members == 1 || graph.tensor(parameter).slice.axis != graph::kNone;
}

GradientExchange::GradientExchange(graph::Graph& graph,
                                   const std::vector<ParameterGradient>& gradients,
                                   const UpdateOptions& options, bool whole)
    : graph_(graph), options_(options) {
  std::vector<ParameterGradient> pairs = gradients;
  form_buckets(pairs);
  if (options.accumulate) {
    for (Bucket& bucket : buckets_) accumulate(bucket.pairs);
  }
  for (Bucket& bucket : buckets_) {
    if (bucket.travels) start(bucket, whole);
  }
  if (!options.accumulate) move_starts_behind_gradients();
}

void GradientExchange::form_buckets(const std::vector<ParameterGradient>& pairs) {
  std::vector<size_t> made(static_cast<size_t>(graph_.operator_count()), 0);
  for (size_t i = 0; i < graph_.order().size(); ++i) {
    made[static_cast<size_t>(graph_.order()[i])] = i;
  }
  const auto position = [&](const ParameterGradient& pair) {
    return made[static_cast<size_t>(graph_.tensor(pair.gradient).producer)];
  };
  std::vector<ParameterGradient> sorted = pairs;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return position(a) < position(b); });
  Bucket own;
  own.travels = false;
  Bucket open;
  const auto close = [&] {
    if (!open.pairs.empty()) buckets_.push_back(std::move(open));
    open = {};
  };
  for (const ParameterGradient& pair : sorted) {
    if (is_own(graph_, pair.parameter, options_)) {
      own.pairs.push_back(pair);
      continue;
    }
    const int64_t bytes = bytes_of(graph_.tensor(pair.gradient));
    const bool large = bytes >= options_.bucket_bytes;
    if (large) {
      buckets_.push_back({.pairs = {pair}, .bytes = bytes, .position = position(pair)});
      continue;
    }
    if (open.bytes + bytes > options_.bucket_bytes ||
        open.pairs.size() == graph::kMostExchangedTensors)
      close();
    open.pairs.push_back(pair);
    open.bytes += bytes;
    open.position = position(pair);
  }
  close();
  std::stable_sort(buckets_.begin(), buckets_.end(),
                   [](const Bucket& a, const Bucket& b) { return a.position < b.position; });
  if (!own.pairs.empty()) buckets_.push_back(std::move(own));
}

void GradientExchange::accumulate(std::vector<ParameterGradient>& pairs) {
  for (ParameterGradient& pair : pairs) {
    const graph::Tensor& parameter = graph_.tensor(pair.parameter);
    graph::Tensor sum;
    sum.name = parameter.name + ".grad_sum";
    sum.type = parameter.type;
    sum.role = graph::Role::accumulator;
    const std::string name = parameter.name + "/accumulate";
    const graph::TensorId total = graph_.add_tensor(std::move(sum));
    const graph::OperatorId added = graph_.add_operator(
        "accumulate", name, {total, pair.gradient, pair.parameter}, {}, graph::Phase::backward);
    std::vector<graph::OperatorId> order = graph_.order();
    order.pop_back();
    const auto made = std::find(order.begin(), order.end(), graph_.tensor(pair.gradient).producer);
    order.insert(made + 1, added);
    graph_.set_order(std::move(order));
    pair.gradient = total;
  }
}

void GradientExchange::start(Bucket& bucket, bool whole) {
  bucket.ticket = tickets_++;
  std::vector<graph::TensorId> inputs;
  int64_t staging = 0;
  for (const ParameterGradient& pair : bucket.pairs) {
    inputs.push_back(pair.gradient);
    staging += padded_elements(graph_.tensor(pair.gradient).type.shape);
  }
  for (const ParameterGradient& pair : bucket.pairs) inputs.push_back(pair.parameter);
  const bool alone = bucket.pairs.size() == 1;
  bucket.start = graph_.add_operator(
      "gradient_reduce_start", fmt::format("gradients/{}/start", bucket.ticket), inputs,
      {{"tensors", static_cast<int64_t>(bucket.pairs.size())},
       {"ticket", bucket.ticket},
       {"staging", alone ? 0 : staging},
       {"wire", std::string(graph::name_of(options_.wire))},
       {"scatter", alone && options_.share_state && !whole}},
      options_.accumulate ? graph::Phase::update : graph::Phase::backward);
  const std::vector<graph::TensorId> outputs = graph_.op(bucket.start).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph_.tensor(outputs[i]).role =
        i < bucket.pairs.size() ? graph::Role::gradient : graph::Role::communication;
  }
}

void GradientExchange::move_starts_behind_gradients() {
  std::vector<graph::OperatorId> starts;
  for (const Bucket& bucket : buckets_) {
    if (bucket.travels) starts.push_back(bucket.start);
  }
  const std::vector<graph::OperatorId> before(
      graph_.order().begin(), graph_.order().end() - static_cast<ptrdiff_t>(starts.size()));
  std::vector<graph::OperatorId> order;
  size_t next = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    order.push_back(before[i]);
    for (; next < starts.size() && buckets_[next].position == i; ++next) {
      order.push_back(starts[next]);
    }
  }
  graph_.set_order(std::move(order));
}

std::vector<ParameterGradient> GradientExchange::next() {
  Bucket& bucket = buckets_[next_++];
  if (!bucket.travels) return bucket.pairs;
  const graph::OperatorId wait = graph_.add_operator(
      "gradient_reduce_wait", fmt::format("gradients/{}/wait", bucket.ticket),
      graph_.op(bucket.start).outputs,
      {{"tensors", static_cast<int64_t>(bucket.pairs.size())}, {"ticket", bucket.ticket}},
      graph::Phase::update);
  for (size_t i = 0; i < bucket.pairs.size(); ++i) {
    bucket.pairs[i].gradient = graph_.op(wait).outputs[i];
    graph_.tensor(bucket.pairs[i].gradient).role = graph::Role::gradient;
  }
  return bucket.pairs;
}

void GradientExchange::share(graph::TensorId parameter) {
  if (!options_.share_state || is_own(graph_, parameter, options_)) return;
  const int64_t ticket = tickets_++;
  graph_.add_operator("parameter_gather_start", graph_.tensor(parameter).name + "/gather",
                      {parameter}, {{"ticket", ticket}}, graph::Phase::update);
  shared_.push_back(ticket);
}

// The transfers go one after the other, so the last ticket stands for all.
void GradientExchange::finish() {
  if (shared_.empty()) return;
  graph_.add_operator("exchange_wait", "parameters/wait", {}, {{"ticket", shared_.back()}},
                      graph::Phase::update);
}

}  // namespace millrace::passes
