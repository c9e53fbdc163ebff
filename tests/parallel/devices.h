// Several devices as threads of the test, each interpreting its own graph.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "parallel/localize.h"
#include "testing.h"

namespace millrace::testing {

using TensorValues = std::map<TensorId, Values>;

// The rows that a slice cuts out of a whole tensor, and all parts put together again.
Values part_of(const Values& whole, const Shape& shape, const Slice& slice, int64_t size);
Values joined(const std::vector<Values>& parts, const Shape& whole, const Sharding& sharding);

// Calls body(member, collectives) on a thread for each member; sums are in order of the members.
void run_together(int members, const std::function<void(int, Collectives&)>& body);

// Runs every member's graph at the same time.
std::vector<TensorValues> run_members(const std::vector<Graph>& graphs,
                                      std::vector<TensorValues> values);

// The value given to each persistent tensor of a graph, by name, cut as its slice says.
TensorValues start_values(const Graph& graph, const std::map<std::string, Values>& whole,
                          const Graph& whole_graph);

// The largest distance in units of the largest expected value, and of 1e-3 if that is smaller.
double relative_error(const Values& actual, const Values& expected);

}  // namespace millrace::testing
