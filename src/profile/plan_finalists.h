// Which plans for this machine are worth measuring.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search/search.h"

namespace millrace::profile {

// A plan with what the formulas say of it. Plain data.
struct HereCandidate {
  planner::PlannedJob job;
  parallel::Plan plan;
  std::string shape;
  double estimated_seconds = 0;  // of the global batch
  double memory = 0;             // of all its devices together, and the process
  double fullest = 0;            // of the one that needs most
  bool fits = true;
  std::string reason;  // why it does not fit

  int devices() const { return job.devices(); }
  double samples() const { return job.samples_per_step(); }
};

struct HereRequest {
  planner::SearchRequest search;  // its devices are those of the cluster
  bool synchronise_batch_norm = false;
};

struct HereCandidates {
  std::vector<HereCandidate> list;  // by estimate, those that do not fit last
  size_t tried = 0;

  void merge(HereCandidates other);
};

// What the search finds for the devices of this cluster, and the same stages with every schedule
// that `train` knows. Throws InputError as `search_plans` does.
HereCandidates candidates_here(const planner::CostContext& context, const HereRequest& request);

// The places in `candidates` of at most `count` that fit: the best by estimate, then the best of
// each number of devices, of stages, of each schedule, of each other kind, then by estimate again.
// In the order of the list.
std::vector<size_t> choose_finalists(const std::vector<HereCandidate>& candidates, size_t count);

// The places in `candidates` of those of the same kind as `plan` that fit, with half or twice its
// micro-batches.
std::vector<size_t> neighbours_of(const HereCandidate& plan,
                                  const std::vector<HereCandidate>& candidates);

}  // namespace millrace::profile
