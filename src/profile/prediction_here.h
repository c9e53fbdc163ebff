// What a job will take on this machine: its programs measured here, then simulated.
#pragma once

#include "base/json.h"
#include "profile/job_profile.h"
#include "simulate/job_simulation.h"
#include "train/device_report.h"

namespace millrace::profile {

struct HerePrediction {
  simulate::SimulatedSteps steps;
  double step_seconds = 0;
  double samples_per_second = 0;
  // Relative: how far the rounds of the profile lie apart, and what the simulation leaves out, as
  // three quarters of the predictions that were checked show; the root of their squares.
  double error_estimate = 0;
  double round_spread = 0;
  double checked_error = 0;
  std::vector<train::DeviceReport> devices;  // memory, of the devices of this process
  int64_t resident_bytes = 0;                // of this process at most
  double profile_seconds = 0;                // that measuring took
  JobProfile profile;                        // of this process, with the speed of exchange
  simulate::JobSimulation simulation;
  simulate::SimulationResult result;
};

// Compiles the job, measures every program with all devices at work, and simulates as many steps as
// the job has (at most those that one segment of an undrained pipeline holds). Called by all
// processes of the job, which measure at the same time and get the same times. Throws InputError
// as `run_training` does.
HerePrediction predict_here(const train::TrainJob& job, const MeasureOptions& options,
                            train::TrainingObserver& observer);

// The same from a saved profile of the very job, without measuring; equal profiles give equal
// times. `file` is named in errors. The job runs in this process alone. Throws InputError for a
// profile of another job.
HerePrediction predict_here(const train::TrainJob& job, const JobProfile& profile,
                            std::string_view file, train::TrainingObserver& observer);

// As train::describe_plan, with the seconds of a step: its programs simulated, each instruction by
// a formula and a short measurement of this machine.
Json describe_plan(const train::TrainJob& job, train::TrainingObserver& observer,
                   bool with_programs = false);

// "predicted_step_seconds", "predicted_samples_per_second", "error_estimate" and where it is
// "from", "devices", "bubble", "links" with their bytes, "process_rss_bytes".
Json to_json(const HerePrediction& prediction);

}  // namespace millrace::profile
