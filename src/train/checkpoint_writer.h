// Writes checkpoints beside the training steps.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "train/checkpoint.h"
#include "train/observer.h"
#include "train/weights.h"

namespace millrace {

// Owns a low-priority thread and one host copy of the model's state. `save` copies the state
// (the only part that the training step waits for) and returns; the thread writes, flushes and
// renames, then removes checkpoints beyond the newest `keep` and the best. A failure leaves
// earlier checkpoints as they were. All calls come from one thread. The destructor waits for a
// write that has begun.
class CheckpointWriter {
 public:
  // What became of a save: a report, or the reason why there is none.
  struct Outcome {
    CheckpointReport report;
    std::string failure;
  };

  // Creates the directory and removes what an interrupted writer left behind. Throws
  // InputError if that cannot be.
  CheckpointWriter(std::filesystem::path directory, int keep);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Takes the memory for the copy, so that the first save pauses training no longer than others.
  void reserve(const JobState& state) { take_snapshot(state, snapshot_); }

  // Waits for an earlier save first. The other processes of the job call take_snapshot.
  // `manifest.files` is filled by the writer.
  void save(const JobState& state, Manifest manifest);

  // Outcomes since the last call.
  std::vector<Outcome> take_outcomes();

  // How long of the time since `start` a checkpoint was being written.
  double seconds_writing_since(std::chrono::steady_clock::time_point start);

  // Waits until nothing is being written.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void work();

  std::filesystem::path directory_;
  int keep_;
  StateSnapshot snapshot_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Manifest> pending_;  // present from save until its outcome is there
  Clock::time_point write_start_;    // of the newest save, once its snapshot was taken
  Clock::time_point write_end_;
  double pause_seconds_ = 0;
  std::vector<Outcome> outcomes_;
  bool stopping_ = false;
  std::thread thread_;
};

// The body of the writer without its thread: writes one checkpoint, returns its size.
uint64_t write_checkpoint(const std::filesystem::path& directory, Manifest manifest,
                          const StateSnapshot& snapshot);

// Of the checkpoints up to step `newest`, removes those beyond the newest `keep` and the one
// with the highest accuracy. Later ones were left by another run and are not counted.
void prune_checkpoints(const std::filesystem::path& directory, int keep, int64_t newest);

}  // namespace millrace
