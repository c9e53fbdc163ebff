// Checkpoints in the directory of a run: appearing whole, going away, being cleared up.
#pragma once

#include <filesystem>
#include <string>

#include "train/checkpoint.h"

namespace millrace::train {

// A checkpoint in the making, under the name `target`.partial. Destroyed before `publish` has
// returned, it leaves nothing behind and an earlier checkpoint of that name as it was.
class PartialCheckpoint {
 public:
  explicit PartialCheckpoint(std::filesystem::path target);
  ~PartialCheckpoint();
  PartialCheckpoint(const PartialCheckpoint&) = delete;
  PartialCheckpoint& operator=(const PartialCheckpoint&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Writes the manifest, flushes, and gives the directory its name.
  void publish(const Manifest& manifest);

  // Why a checkpoint that is there now may not outlive a power cut; empty: it does.
  const std::string& not_flushed() const { return not_flushed_; }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  std::string not_flushed_;
};

// Removes what an interrupted writer left behind.
void remove_leftovers(const std::filesystem::path& directory);

// Of the checkpoints up to step `newest`, removes those beyond the newest `keep` and the one
// that was measured best. Later ones were left by another run and are not counted.
void prune_checkpoints(const std::filesystem::path& directory, int keep, int64_t newest);

}  // namespace millrace::train
