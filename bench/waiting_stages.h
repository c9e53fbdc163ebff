// Pipelines whose kernels wait for a set time instead of computing, so that any number of devices
// run at once on any number of cores.
#pragma once

#include <functional>
#include <vector>

#include "parallel/schedule.h"
#include "runtime/trace.h"

namespace millrace {

struct WaitingJob {
  parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush;
  int stages = 2;
  int64_t micro_batches = 4;
  int64_t steps = 1;
  double unit_seconds = 0.01;  // of a forward; a backward takes two, each part of it one
  int64_t fails_at = -1;       // micro-batch whose backward fails in the last stage; -1: none
};

struct WaitingRun {
  std::vector<std::vector<parallel::Task>> order;  // what each stage ran, updates left out
  double bubble = 0;  // time without work over all time, mean over the stages
  runtime::TraceLog trace;
};

// Each message carries the number of its micro-batch and of the stages it has come through; a
// kernel that finds another one throws.
WaitingRun run_waiting(const WaitingJob& job);

}  // namespace millrace
