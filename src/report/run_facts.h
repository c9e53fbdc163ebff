// What can be said about a run, from whichever of its files are there. Plain data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/run_files.h"

namespace millrace {

inline constexpr double kEpochImages = 1281167;  // of ImageNet, as published tables count

// Values of JSON that may be anything: nothing unless they are of the kind asked for.
Json json_member(const Json& object, const char* key);
std::optional<double> json_number(const Json& object, const char* key);
std::string json_text(const Json& object, const char* key);  // of strings and numbers; or empty

// One step, as metrics tell it.
struct StepPoint {
  double step = 0;
  std::optional<double> loss, samples_per_second, learning_rate, loss_scale;
  bool skipped = false;  // its gradients overflowed
};

struct RunFacts {
  std::string name, model, data, precision, schedule, placement, cuts;
  int devices = 0;
  std::optional<double> batch, steps, image, micro_batches;
  std::optional<double> seconds_per_step, samples_per_second;  // measured
  std::optional<double> predicted_seconds, predicted_rate, predicted_error;
  std::vector<double> stage_memory;  // of the fullest device of each stage
  std::optional<double> first_loss, last_loss, skipped_steps;
  std::optional<double> top1;  // of the last evaluation
  bool fits = true, finished = true;
  std::vector<StepPoint> points;

  // The measured rate, or else the predicted one.
  std::optional<double> rate() const {
    return samples_per_second ? samples_per_second : predicted_rate;
  }
};

RunFacts facts_of(const Run& run);

// The run in a sentence.
std::string sentence_of(const RunFacts& facts);

}  // namespace millrace
