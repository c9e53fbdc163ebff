// Steps of a run as the page's script takes them.
#pragma once

#include <vector>

#include "base/json.h"
#include "report/run_facts.h"

namespace millrace::report {

inline constexpr size_t kMostPagePoints = 2500;  // of a curve

struct CurveData {
  // {"steps", "loss", "samples_per_second", "learning_rate", "loss_scale"}, and of a run with many
  // steps "low" and "high" with the ranges of the first two: arrays of one length.
  Json json;
  size_t steps = 0;   // of the run
  size_t stride = 1;  // steps in a point, which has their mean
  bool has_rate = false;
  bool changes_learning_rate = false;
  bool changes_loss_scale = false;
};

CurveData curves_of(const std::vector<StepPoint>& points);

}  // namespace millrace::report
