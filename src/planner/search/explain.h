// What bounds a plan, and what would change it, found by predicting again with each change.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "planner/search/question.h"

namespace millrace::planner {

// Seconds of a step on a device of a stage.
struct StageBound {
  double computing = 0;
  double waiting = 0;  // for links, or for other stages
  // By which that falls with twice the arithmetic, the memory traffic, or the links.
  double by_arithmetic = 0, by_memory = 0, by_links = 0;

  // "arithmetic", "memory traffic", "links" or "other stages".
  std::string bound() const;
};

// Another plan, or the same, after one change.
struct PlanChange {
  std::string name;   // "one more device"
  PlanAnswer answer;  // no job: nothing fits
  double factor = 0;  // of samples per second
};

struct Explanation {
  std::vector<StageBound> stages;
  std::vector<PlanChange> changes;
};

// `job` is the answer to the question. Changes that make no sense for it are left out.
Explanation explain(const PlanQuestion& question, const PlannedJob& job);

// {"stages": [{"stage", "computing", "waiting", "bound", ...}], "changes": [{"change", "factor",
// "predicted_samples_per_second", "shape"}]}
Json describe(const Explanation& explanation);
std::string format_explanation(const Json& described);

}  // namespace millrace::planner
