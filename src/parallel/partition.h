// Which stage computes which operator. Plain data and rules; no threads.
//
// Every function returns a stage per operator of the graph, by OperatorId, that passes
// check_stages: each operator of the order is in one stage, no stage is empty, and no tensor goes
// back to an earlier stage. Operators that join an input (labels) with what the network computed
// are in the last stage. They throw InputError, one sentence, where that is not possible.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace millrace::parallel {

inline constexpr int64_t kMostStageWeight = 1'000'000;

// "11:7" → {11, 7}; `flag` is named in errors. Each weight is at least 1 and at most a million.
std::vector<int64_t> parse_stage_weights(std::string_view text, std::string_view flag);

// By share of the operators. The backbone is those operators between a parameter and the loss that
// read two or more trained tensors (say data and a weight), and those that read from such a one. It
// is divided, in order, into as many equal slots as all weights together; stage 0 has the first
// weights[0] of them, and so on. Every other operator goes with the backbone operator nearest
// before it or, at the start of the network, nearest behind it.
std::vector<int> assign_by_share(const graph::Graph& forward, const std::vector<int64_t>& weights);

// Ends a stage behind each of these layers, in order. A name is an operator's, or that of a block
// ("layer2" for "layer2.0.conv1", …), which ends before the next operator with parameters.
std::vector<int> assign_after(const graph::Graph& forward, const std::vector<std::string>& layers);

struct BalanceOptions {
  int stages = 1;
  std::vector<int> replicas = {};  // of each stage, among which its work is divided; empty: one
  // Seconds for forward and backward of an operator on one device; null: modelled_seconds.
  std::function<double(graph::OperatorId)> seconds = nullptr;
  double bytes_per_second = 0;  // between devices; 0: transfers cost nothing
  // Per stage: bytes a device has; empty: enough. What a stage needs is estimated from copies of
  // its weights, one gradient, `optimizer_copies`, and its activations in flight.
  std::vector<int64_t> memory_limits = {};
  std::vector<int64_t> versions = {};   // per stage; empty: one
  std::vector<int64_t> in_flight = {};  // per stage; empty: one
  int64_t optimizer_copies = 1;
};

// The cut of the order into runs whose slowest stage or transfer is as fast as can be. Where no cut
// keeps the limits by the estimate, the one that exceeds them least: the compiled program tells
// exactly.
std::vector<int> assign_balanced(const graph::Graph& forward, const BalanceOptions& options);

// Arithmetic and memory traffic of forward and backward, at the speed of some processor: good for
// comparing operators.
double modelled_seconds(const graph::Graph& forward, graph::OperatorId id);

// Throws std::logic_error naming the first operator or stage that breaks the rules above.
void check_stages(const graph::Graph& forward, const std::vector<int>& stages, int count);

}  // namespace millrace::parallel
