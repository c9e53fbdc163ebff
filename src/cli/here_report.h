// How the choice of a plan for this machine is shown: as JSON, and as text made from it.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster_report.h"
#include "profile/plan_finalists.h"

namespace millrace::cli {

// A finalist and what its measurements, one or several, say. Plain data.
struct MeasuredPlan {
  profile::HereCandidate candidate;
  std::vector<Json> reports;        // as `to_json` of predictions here makes them
  std::string failure;              // why there are none
  std::vector<double> trials = {};  // seconds of a step, of each time that it was trained

  bool measured() const { return !reports.empty(); }
  double trained_seconds() const;  // the median of the trials, of a step; 0: none
  // Of the step that `train` would count, and of the global batch; the median of the reports.
  double step_seconds() const;
  double seconds(double global_batch) const;
};

struct HereOutcome {
  std::string model;
  double global_batch = 0;
  size_t tried = 0;
  // Finalists, best first: those that were trained, those that were only measured, those that could
  // not be. Empty: nothing was measured.
  std::vector<MeasuredPlan> plans;
  std::vector<profile::HereCandidate> others;  // the rest, by estimate, those that do not fit last
};

// The lists "best" and "others"; measured ones have "estimated" and "predicted" seconds of the
// global batch, and "trained_seconds_per_step" if they were tried.
Json describe_search(const HereOutcome& outcome);

// The contract of `plan --json`, for the best plan.
Json describe_choice(const HereOutcome& outcome, const planner::NetworkWork& network);

std::string format_choice(const Json& described);

}  // namespace millrace::cli
