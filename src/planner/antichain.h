// The ways to cut a network in two so that data only flows forward.
#pragma once

#include <vector>

#include "planner/profile_graph.h"

namespace millrace::planner {

// A prefix of the network: some operators and everything before them. `antichain` are its last
// operators, which stand for it.
struct State {
  NodeSet prefix;
  std::vector<int> antichain;
  Totals totals;            // of the prefix
  double output_bytes = 0;  // that leave the prefix, see ProfileGraph::output_bytes
};

// All states that can be reached from the first source by adding an operator next to the prefix,
// with whatever must come before it. Sorted so that a state comes after those it contains; the last
// one contains all others. `predecessors[j]` are the states strictly inside state j, in that order.
// Plain data.
struct StateSpace {
  std::vector<State> states;
  std::vector<std::vector<int>> predecessors;
  std::vector<int> unreached;  // nodes not connected to the first source
};

// Throws InputError if there are too many states to plan with.
StateSpace find_states(const ProfileGraph& graph);

}  // namespace millrace::planner
