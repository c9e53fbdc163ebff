// Slow and literal versions of what the planner computes, and graphs to try them on.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "planner/pipedream.h"

namespace millrace::reference {

using Nodes = std::set<int>;

struct Cut {
  Nodes antichain, prefix;
  double seconds = 0, activations = 0, parameters = 0, output = 0;
};

// The states by the letter of their definition, smaller prefixes first.
std::vector<Cut> find_cuts(const planner::Profile& profile);

// The least time of all divisions, each tried; infinite if there is none.
double exhaustive_seconds(const std::vector<Cut>& cuts, const planner::PipedreamOptions& options);

// A profile of nodes n0, n1, ... with costs from `seed`, and these edges.
planner::Profile make_profile(int nodes, const std::vector<std::pair<int, int>>& edges,
                              unsigned seed);
// Edges from a smaller number to a larger one, at random.
planner::Profile random_profile(int nodes, double density, unsigned seed);

planner::Profile published(const std::string& name);

}  // namespace millrace::reference
