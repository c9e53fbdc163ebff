// Published configurations as jobs of Millrace: compiled at full size for their exact memory, and
// run on this machine at a size that it can bear.
#pragma once

#include "base/json.h"
#include "planner/published/rows.h"
#include "train/job.h"

namespace millrace::bench {

struct ReducedSize {
  int64_t image = 32;     // pixels, more where the network needs them
  int64_t batch = 2;      // samples per device, or per mini-batch of replicas in turn
  int64_t steps = 4;      // the first warms up
  double classes = 1e-3;  // share of a head's classes
};

// The row as published, all devices in one process.
train::TrainJob full_job(const planner::PublishedTables& tables, const planner::PublishedRow& row);
train::TrainJob reduced_job(const planner::PublishedTables& tables,
                            const planner::PublishedRow& row, const ReducedSize& size);

// Adds "exact_memory_mib", one number a stage, to the row's description, or "exact_note" with the
// reason why Millrace cannot run it.
void add_exact_memory(const train::TrainJob& job, Json& described);

// Runs the job and adds "run": {image, batch, devices, steps, samples_per_second, first_loss,
// last_loss, peak_bytes}, or "run_note" with the reason why it was not: no such configuration in
// Millrace, or more memory than most of what is free here.
void add_run(const train::TrainJob& job, const ReducedSize& size, Json& described);

}  // namespace millrace::bench
