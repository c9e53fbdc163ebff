// The flags that describe a job, the same for every command that takes one.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/head_flags.h"
#include "cli/plan_flags.h"
#include "cli/precision_flags.h"
#include "cli/scale_flags.h"
#include "cli/tuning_flags.h"
#include "train/job.h"

namespace millrace::cli {

// What the user typed, before it is understood. Numbers without a value here take a default
// that depends on the model or the optimizer.
struct JobFlags {
  std::string model;
  std::optional<int64_t> classes, image, channels;
  std::string dropout = "on";
  HeadFlags head;
  ScaleFlags scale;

  std::string data = "synthetic";
  std::string augment = "auto";
  std::string on_bad_record = "fail";
  std::vector<float> mean, deviation;
  double valid_share = 0;
  int64_t label_offset = 0;
  int workers = 2;

  bool best = false;  // of checkpoints
  int64_t batch = 32;
  std::optional<int64_t> global_batch;  // of all devices, instead
  int64_t steps = 0, epochs = 0;
  uint64_t seed = 0;

  PlanFlags plan;
  PrecisionFlags precision;
  TuningFlags tuning;
  int threads = 0;
  bool oversubscribe = false;
  std::string backend = "cpu", strict_order;
  std::string device_memory;
  std::string recompute = "auto";
  std::string convolution = "auto";
  std::string dump_passes;
  bool check_finite = false;

  std::string optimizer = "sgd";
  std::optional<double> learning_rate, weight_decay, adam_epsilon;
  double momentum = 0.9;
  bool nesterov = false, decay_all = false, clip_backbone = false;
  double label_smoothing = 0, clip_norm = 0;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, lars_trust = 0.001;

  std::set<std::string> typed;  // of those that a plan may say too

  std::string schedule = "constant";
  std::string warmup = "0";
  std::vector<std::string> milestones;
  double gamma = 0.1, power = 2, final_rate = 0;
};

// Model and data: what evaluation needs too.
void add_model_flags(CLI::App& command, JobFlags& flags);
void add_data_flags(CLI::App& command, JobFlags& flags);
void add_device_flags(CLI::App& command, JobFlags& flags);
// Of commands that run programs as training does.
void add_backend_flags(CLI::App& command, JobFlags& flags);
// Everything else that a training step depends on.
void add_training_flags(CLI::App& command, JobFlags& flags);

// The flags with what the plan's file says besides placement, if they name one. Throws InputError
// where a flag says something else, or the plan is for another model.
JobFlags with_plan_file(JobFlags flags);

// Understands the flags for a job of so many processes. Throws InputError naming the flag at fault,
// with a suggestion.
train::TrainJob to_job(const JobFlags& flags, int processes = 1);

// `value` must be one of `choices`; throws InputError naming `flag`. Returns its index.
size_t choose(std::string_view flag, const std::string& value,
              const std::vector<std::string>& choices);

// Throws InputError for a name that no optimizer has.
const graph::OptimizerDefinition& choose_optimizer(const std::string& name);

}  // namespace millrace::cli
