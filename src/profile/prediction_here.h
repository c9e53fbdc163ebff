// What a job will take on this machine: its programs measured here, then simulated.
#pragma once

#include "base/json.h"
#include "profile/exchange.h"
#include "profile/measure.h"
#include "profile/program_simulation.h"
#include "train/device_report.h"

namespace millrace {

struct HerePrediction {
  SimulatedSteps steps;
  double step_seconds = 0;
  double samples_per_second = 0;
  double error_estimate = 0;          // relative, from how far the rounds of the profile lie apart
  std::vector<DeviceReport> devices;  // memory, of the devices of this process
  int64_t resident_bytes = 0;         // of this process at most
  double profile_seconds = 0;         // that measuring took
  ExchangeSpeed exchange;
  ProgramSimulation simulation;
  SimulationResult result;
};

// Compiles the job, measures every program with all devices at work, and simulates as many steps as
// the job has (at most those that one segment of an undrained pipeline holds). Called by all
// processes of the job, which measure at the same time and get the same times. Throws InputError
// as `run_training` does.
HerePrediction predict_here(const TrainJob& job, const MeasureOptions& options,
                            TrainingObserver& observer);

// "predicted_step_seconds", "predicted_samples_per_second", "error_estimate", "devices", "bubble",
// "links" with their bytes, "process_rss_bytes".
Json to_json(const HerePrediction& prediction);

}  // namespace millrace
