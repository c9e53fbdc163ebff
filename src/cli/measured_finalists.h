// Measures the plans that may be the best on this machine.
#pragma once

#include <functional>

#include "cli/here_report.h"
#include "train/job.h"

namespace millrace::cli {

struct TrialSettings {
  size_t count = 12;  // plans at most
  int rounds = 5;     // of each measurement
  double memory = 0;  // bytes that are free
  std::function<train::TrainJob(const profile::HereCandidate&)> job_of;
};

// Takes finalists out of `outcome.others`, predicts each from its programs, measured in a child of
// this process, which must not have started threads yet, and puts them into `outcome.plans`, best
// first. Progress goes to standard error. Throws JobError if none can be measured.
void measure_finalists(HereOutcome& outcome, const TrialSettings& settings);

// Compiles the job in a child, without taking its memory; throws InputError if it needs more.
void require_memory(const train::TrainJob& job, double memory);

}  // namespace millrace::cli
