// `millrace plan --predict` and `--check`: a job's time from its programs measured here, and how
// near that comes to a run.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "profile/measure.h"
#include "train/job.h"

namespace millrace::cli {

struct CheckFlags {
  bool predict = false;
  bool check = false;
  int rounds = 5;
  std::string run;  // directory for what `millrace report` takes; empty: none
};

void add_check_flags(CLI::App& command, CheckFlags& flags);

inline bool uses_check(const CheckFlags& flags) { return flags.predict || flags.check; }

// Files that a check takes or makes; empty: none.
struct CheckFiles {
  std::string trace = {};    // for the simulated timeline
  std::string profile = {};  // of the job, to predict from instead of measuring
};

// What `to_json` says of the job's prediction, made in a child of this process, which must not have
// started threads yet.
Json predict_in_child(const train::TrainJob& job, const profile::MeasureOptions& options,
                      const CheckFiles& files);

// The median of the seconds of a step but the first, of so many that a child of this process
// trains.
double train_in_child(const train::TrainJob& job, int64_t steps);

// Throws InputError unless `--rounds` makes sense.
void check(const CheckFlags& flags);

// Prints; returns the exit status.
int run_check(const CheckFlags& flags, train::TrainJob job, CheckFiles files, bool json);

}  // namespace millrace::cli
