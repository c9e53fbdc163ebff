// What can be said about a run, from whichever of its files are there. Plain data.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/run_files.h"
#include "report/timeline.h"

namespace millrace::report {

// An epoch of data that has none: that of ImageNet, as published tables count.
inline constexpr double kEpochImages = 1281167;

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

struct Evaluation {
  double step = 0;
  std::optional<double> samples;
  std::vector<std::pair<std::string, double>> figures = {};  // by the names of metrics

  std::optional<double> figure(std::string_view name) const;
};

struct RunFacts {
  std::string name, model, data, precision, schedule, placement, cuts;
  int devices = 0;
  double epoch_images = kEpochImages;
  std::optional<double> batch, steps, image, micro_batches;
  std::optional<double> seconds_per_step, samples_per_second;  // measured
  std::optional<double> predicted_seconds, predicted_rate;
  std::optional<double> predicted_error;   // relative, as the prediction expects it
  std::optional<double> predicted_bubble;  // share of all time
  std::optional<double> process_memory, predicted_process_memory;
  std::vector<double> stage_memory;  // of the fullest device of each stage
  std::optional<double> first_loss, last_loss, skipped_steps;
  std::vector<Evaluation> evaluations;
  bool fits = true, finished = true;
  std::vector<StepPoint> points;
  std::map<const RunFile*, TraceFacts> traces;  // of the run that the facts were taken from
  std::optional<double> bubble;  // share of all time, of the first trace that was measured

  // The measured rate, or else the predicted one.
  std::optional<double> rate() const {
    return samples_per_second ? samples_per_second : predicted_rate;
  }
};

// `first_step` and `steps` choose what pictures of traces open with, as in ReportOptions.
RunFacts facts_of(const Run& run, int64_t first_step = -1, int64_t steps = 2);

// The run in a few sentences: what ran where, how fast, how large, and how near the prediction
// came.
std::string sentence_of(const RunFacts& facts);

// A prediction relative to what was measured, such as "+3.1 %"; "–" if that makes no sense.
std::string error_text(double predicted, double measured);

}  // namespace millrace::report
