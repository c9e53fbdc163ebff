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

#include "train/centre_shards.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"
#include "train/checkpoint_lock.h"
#include "train/observer.h"
#include "train/weights.h"

namespace millrace::train {

// Owns a low-priority thread and one host copy of the model's state. `save` copies the state
// (the only part that the training step waits for) and returns; class centres, which there may be
// no memory to copy, it writes at once. The thread writes the rest, flushes and renames, then
// removes checkpoints beyond the newest `keep` and the best. A failure leaves earlier checkpoints
// as they were. All calls come from one thread. The destructor waits for a write that has begun.
class CheckpointWriter {
 public:
  // What became of a save: a report, or the reason why there is none.
  struct Outcome {
    CheckpointReport report;
    std::string failure;      // why it was not written
    std::string not_pruned;   // why older ones are still there
    std::string not_flushed;  // why it may be lost if the power fails
    bool was_gone = false;    // the directory, or its lock, since the save before
  };

  // Creates the directory and removes what an interrupted writer left behind. Throws
  // InputError if that cannot be. A `lock` (may be null) is renewed before each save.
  CheckpointWriter(std::filesystem::path directory, int keep, CheckpointLock* lock = nullptr);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Takes the memory for the copy, so that the first save pauses training no longer than others.
  void reserve(const JobState& state) { take_snapshot(state, snapshot_); }

  // A sentence if a checkpoint of the job would not fit on the disk; else empty.
  std::string lack_of_space(const JobState& state, bool with_average) const;

  // Waits for an earlier save first. The other processes of the job call `contribute`.
  // `manifest.files` is filled by the writer. `average` (may be null) is copied too.
  void save(const JobState& state, Manifest manifest, const StateSnapshot* average = nullptr);

  // Outcomes since the last call.
  std::vector<Outcome> take_outcomes();

  // How long of the time since `start` a checkpoint was being written.
  double seconds_writing_since(std::chrono::steady_clock::time_point start);

  // Waits until nothing is being written.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  void work();
  std::string prune(int64_t newest) const;  // why it could not

  std::filesystem::path directory_;
  int keep_;
  CheckpointLock* lock_;
  bool was_gone_ = false;
  StateSnapshot snapshot_;
  StateSnapshot average_;                       // empty: none
  std::unique_ptr<PartialCheckpoint> partial_;  // what is being written
  std::unique_ptr<ShardWriter> centres_;        // in it; null: none
  std::string early_failure_;                   // of `save`
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

// About what a checkpoint of the job takes on the disk.
uint64_t checkpoint_bytes(const JobState& state, bool with_average);

// What the other processes do in a save.
void contribute(const JobState& state);

// The body of the writer without its thread: writes the rest of a checkpoint and publishes it,
// returns its size.
uint64_t write_checkpoint(PartialCheckpoint& partial, Manifest manifest,
                          const StateSnapshot& snapshot, ShardWriter* centres = nullptr,
                          const StateSnapshot& average = {});

}  // namespace millrace::train
