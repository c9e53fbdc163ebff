// Several devices as threads of the test, each interpreting its own graph.
#pragma once

#include <barrier>
#include <functional>
#include <map>
#include <vector>

#include "parallel/localize.h"
#include "testing.h"

namespace millrace::testing {

using TensorValues = std::map<graph::TensorId, Values>;

// The rows that a slice cuts out of a whole tensor, and all parts put together again.
Values part_of(const Values& whole, const graph::Shape& shape, const graph::Slice& slice,
               int64_t size);
Values joined(const std::vector<Values>& parts, const graph::Shape& whole,
              const graph::Sharding& sharding);

// Where the members meet. Used by a thread for each member.
class Meeting {
 public:
  explicit Meeting(int members) : barrier_(members), shown_(static_cast<size_t>(members)) {}

  // What this member gets from an operator that exchanges; sums are in order of the members.
  Values exchange(int member, const graph::Operator& op, const graph::Shape& shape,
                  const Values& values);

 private:
  std::barrier<> barrier_;
  std::vector<Values> shown_;
};

// Calls body(member, meeting) on a thread for each member.
void run_together(int members, const std::function<void(int, Meeting&)>& body);

// Runs every member's graph at the same time.
std::vector<TensorValues> run_members(const std::vector<graph::Graph>& graphs,
                                      std::vector<TensorValues> values);

// The value given to each persistent tensor of a graph, by name, cut as its slice says.
TensorValues start_values(const graph::Graph& graph, const std::map<std::string, Values>& whole,
                          const graph::Graph& whole_graph);

// The largest distance in units of the largest expected value, and of 1e-3 if that is smaller.
double relative_error(const Values& actual, const Values& expected);

}  // namespace millrace::testing
