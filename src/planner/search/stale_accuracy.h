// What schedules that train on weights a few updates old have cost in accuracy.
#pragma once

#include <optional>
#include <string>

#include "parallel/schedule.h"

namespace millrace::planner {

// Share of the test images that were right after one epoch of Fashion-MNIST, in percent, as
// data/stale_accuracy.csv has it.
struct StaleAccuracy {
  double one_device = 0;
  double measured = 0;
  int stages = 0;  // of the pipeline that was measured; 0: not known
};

// The measurement whose stages are nearest. None of a schedule that computes what one device does.
std::optional<StaleAccuracy> stale_accuracy(parallel::ScheduleKind kind, int stages);

// "1f1b trains on weights a few updates old: ..."; empty where there is nothing to say.
std::string stale_sentence(parallel::ScheduleKind kind, int stages);

}  // namespace millrace::planner
