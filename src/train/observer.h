// What a running job tells the outside. Nothing in this layer prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/metric.h"
#include "train/worst_samples.h"

namespace millrace::train {

// What is about to run.
struct JobStart {
  std::string model = {};
  int64_t batch = 0;
  int64_t first_step = 0;  // finished steps that a checkpoint brought along
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;  // 0 where there are no epochs
  int devices = 1;
  int threads = 0;                        // of a device
  std::vector<int64_t> stage_bytes = {};  // memory of the largest device of each stage
  std::string arithmetic = {};            // a phrase for people
};

// A finished step. `step` counts finished steps of the whole job, a resumed one included.
struct StepReport {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t epoch = 0;  // that the step belonged to, from 0
  int64_t samples = 0;
  double loss = 0;
  double learning_rate = 0;
  // Of the batch, the loss apart; a margin head's by the cosines without margin.
  std::vector<Measured> figures = {};
  double seconds = 0;             // of this step, waiting for data included
  double wait_seconds = 0;        // for data, within `seconds`
  double checkpoint_seconds = 0;  // within `seconds`, while a checkpoint was being written
  double samples_per_second = 0;
  double seconds_left = 0;
  double loss_scale = 1;
  bool skipped = false;       // no weights changed, as a gradient overflowed
  std::string overflow = {};  // where, as a clause
};

// Exact figures over a whole data set.
struct EvaluationReport {
  int64_t step = 0;
  int64_t samples = 0;
  int64_t skipped = 0;  // damaged records, of those that this process reads
  int64_t pairs = 0;    // of faces
  // One of each metric, in the order of the table; then those of pairs.
  std::vector<Measured> figures = {};
  double seconds = 0;
  // Of those whose images this process has, as many as the job asks for, the worst first.
  std::vector<WorstSample> worst = {};
  std::optional<Measured> best = {};  // of the run so far, in the figure that it is judged by

  // Throws std::out_of_range if it was not measured.
  const Measured& figure(std::string_view metric) const;
  // "loss 0.1234, top-1 93.00 %, top-5 99.00 %"
  std::string text() const;
  // "10000 test samples", "6000 pairs" or both.
  std::string seen() const;
};

struct CheckpointReport {
  int64_t step = 0;
  std::filesystem::path directory = {};
  uint64_t bytes = 0;
  double seconds = 0;        // from the snapshot until it was safe on disk
  double pause_seconds = 0;  // that training stood still for the snapshot
};

enum class Severity : uint8_t { note, warning };

// Implemented by whoever shows or records a job. Calls come one at a time, between steps, while
// the thread that runs the job waits or makes them itself; `on_start` alone may throw, which
// ends the job before its first step.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // What begins now, as a clause such as "compiling resnet50"; before `on_start` only.
  virtual void on_activity(std::string_view) {}
  virtual void on_start(const JobStart&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_evaluation(const EvaluationReport&) {}
  virtual void on_checkpoint(const CheckpointReport&) {}
  // One sentence, with settings marked (base/setting_names.h).
  virtual void on_message(Severity, std::string_view) {}
};

// Passes everything on to several observers in order; borrows them.
class ObserverList : public TrainingObserver {
 public:
  void add(TrainingObserver& observer) { observers_.push_back(&observer); }

  void on_activity(std::string_view what) override {
    for (TrainingObserver* observer : observers_) observer->on_activity(what);
  }
  void on_start(const JobStart& start) override {
    for (TrainingObserver* observer : observers_) observer->on_start(start);
  }
  void on_step(const StepReport& report) override {
    for (TrainingObserver* observer : observers_) observer->on_step(report);
  }
  void on_evaluation(const EvaluationReport& report) override {
    for (TrainingObserver* observer : observers_) observer->on_evaluation(report);
  }
  void on_checkpoint(const CheckpointReport& report) override {
    for (TrainingObserver* observer : observers_) observer->on_checkpoint(report);
  }
  void on_message(Severity severity, std::string_view sentence) override {
    for (TrainingObserver* observer : observers_) observer->on_message(severity, sentence);
  }

 private:
  std::vector<TrainingObserver*> observers_;
};

}  // namespace millrace::train
