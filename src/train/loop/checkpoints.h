// The checkpoints that a running job writes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "train/checkpoint_writer.h"
#include "train/engine.h"
#include "train/feed/feed.h"

namespace millrace::train {

// Where a job stands when its state is saved. Plain data.
struct Progress {
  int64_t step = 0;
  FeedPosition position = {};
  Json loss_scale = {};
  std::optional<Measured> measured = {};   // of an evaluation at this very step
  Json best = {};                          // BestModel::record
  const StateSnapshot* average = nullptr;  // of the weights; null: none
};

// Saves the job's state at most once for each step, or never if the job names no directory. Borrows
// all that it is made of. Used by the loop's thread; all processes call `save`, the first one
// writes.
class Checkpoints {
 public:
  // `saved_step`: what the checkpoint that the job resumed from has; -1: none.
  // `lock` is that of the directory in the first process, which writes; else null.
  Checkpoints(const TrainJob& job, Engine& engine, const JobState& state,
              TrainingObserver& observer, int64_t saved_step, CheckpointLock* lock);

  void save(const Progress& progress);

  // Tells the observer what became of saves since the last call.
  void report();

  // Waits for the last save and reports it.
  void finish();

  // Why the last save failed; empty: it did not.
  const std::string& failure() const { return failure_; }

  // How long of the time since `start` something was being written.
  double seconds_writing_since(std::chrono::steady_clock::time_point start);

 private:
  const TrainJob& job_;
  Engine& engine_;
  const JobState& state_;
  TrainingObserver& observer_;
  std::string fingerprint_;
  std::unique_ptr<CheckpointWriter> writer_;  // in the first process
  int64_t saved_step_;
  std::string failure_;
};

}  // namespace millrace::train
