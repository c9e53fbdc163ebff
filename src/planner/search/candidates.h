// The plans that a search considers.
#pragma once

#include <vector>

#include "planner/search/search.h"

namespace millrace::planner {

struct Candidate {
  PlannedJob job;
  double estimate = 0;       // seconds for the global batch by formula, before simulation
  bool pipedream = false;    // divided as PipeDream would
  double memory = 0;         // of the fullest device
  std::string refusal = {};  // why it does not fit
};

// What all jobs of a request have in common; no stages yet.
PlannedJob basic_job(const SearchRequest& request);

// Every shape with its best cuts. Stages get neighbouring devices, so that a stage stays within a
// machine where it can.
std::vector<Candidate> candidates(const CostContext& context, const SearchRequest& request);

// Those of the request, or found now.
std::vector<Division> divisions_for(const CostContext& context, const SearchRequest& request);

// PipeDream's first division in PipeDream's own schedule; none without a division.
std::optional<PlannedJob> pipedream_job(const CostContext& context, const SearchRequest& request);

// Whether the restrictions of the request let it run so.
bool allows(const SearchRequest& request, const PlannedJob& pipedream);

// How many devices each stage gets: equal shares for every number of stages that divides them, and
// uneven ones for two and three stages.
std::vector<std::vector<int>> device_shares(int devices, int layers);

}  // namespace millrace::planner
