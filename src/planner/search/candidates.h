// The plans that a search considers.
#pragma once

#include <vector>

#include "planner/search/search.h"

namespace millrace {

struct Candidate {
  PlannedJob job;
  double estimate = 0;     // seconds for the global batch by formula, before simulation
  bool pipedream = false;  // divided as PipeDream would
};

// Every shape with its best cuts. Stages get neighbouring devices, so that a stage stays within a
// machine where it can.
std::vector<Candidate> candidates(const CostContext& context, const SearchRequest& request);

// How many devices each stage gets: equal shares for every number of stages that divides them, and
// uneven ones for two and three stages.
std::vector<std::vector<int>> device_shares(int devices, int layers);

}  // namespace millrace
