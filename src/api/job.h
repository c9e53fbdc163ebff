// Training.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/data.h"
#include "api/model.h"
#include "api/plan.h"
#include "api/report.h"
#include "train/trainer.h"

namespace millrace::api {

// The settings that most jobs have; TrainJob has all.
struct JobOptions {
  int64_t batch = 32;  // samples of a step on each device
  int64_t epochs = 0;  // one of epochs and steps is above 0
  int64_t steps = 0;
  std::string optimizer = "sgd";
  std::optional<double> learning_rate = {};  // the optimizer's usual
  std::string schedule = "constant";         // of it: constant, cosine, step or polynomial
  std::vector<int64_t> milestones = {};      // of the schedule step: steps that lower it
  std::optional<double> weight_decay = {};
  double momentum = 0.9;
  double label_smoothing = 0;
  uint64_t seed = 0;
  int devices = 1;            // in this process
  int threads = 0;            // of each; 0: every core
  int64_t device_memory = 0;  // bytes of each; 0: no limit
  std::string precision = "fp32";
  std::filesystem::path checkpoint = {};  // the run's directory; empty: one that goes with the run
  bool resume = false;
  std::filesystem::path trace = {};  // a file for what every device did when
  std::string metric = "top1";
  int64_t patience = 0;
};

// What a run is told and asked; each may be empty, and may throw, which ends the run after the step
// and is thrown on to who started it.
struct Callbacks {
  std::function<bool(const train::StepReport&)> on_step = {};  // false ends the run after this step
  std::function<void(const train::EvaluationReport&)> on_evaluation = {};
  std::function<void(const std::string&)> on_message = {};
};

// A finished run. Its weights lie in its directory; one that no name was given for is removed with
// the last run and model that use it.
class Run {
 public:
  Run(Model model, train::TrainResult result, std::shared_ptr<const void> directory)
      : model_(std::move(model)), result_(std::move(result)), directory_(std::move(directory)) {}

  const train::TrainResult& result() const { return result_; }
  // The model with the weights that were measured best, or with those of the end.
  Model best() const;
  Model last() const;

  // A picture (SVG) of what each device did in some steps. Throws InputError if the job had no
  // `trace`.
  std::string timeline(int64_t steps = 2) const;

 private:
  Model model_;  // that was trained, with the run's directory
  train::TrainResult result_;
  std::shared_ptr<const void> directory_;
};

// A model, data and how to train. Plain data until it is planned or trained; may be both, several
// times.
class Job {
 public:
  Job(const Model& model, const DataPart& train, const std::optional<DataPart>& valid,
      const JobOptions& options);
  // All that is to be done, as the command line says it.
  explicit Job(const train::TrainJob& job);

  // All that the job is; for those who need a field that JobOptions has not.
  train::TrainJob& settings() { return job_; }

  Plan plan(int64_t device_memory = 0) const;
  // Waits for the end. `stop` (may be null) ends it after the current step, with a checkpoint;
  // before the first, it throws JobError.
  Run train(const Callbacks& callbacks = {}, std::atomic<bool>* stop = nullptr) const;
  // For those who want to be told everything. Weights are kept only where the job says so.
  Run train(train::TrainingObserver& observer) const;

 private:
  Run train(const train::TrainJob& job, train::TrainingObserver& observer,
            std::shared_ptr<const void> directory) const;

  Model model_;
  DataPart train_;
  std::optional<DataPart> valid_;
  train::TrainJob job_;
};

}  // namespace millrace::api
