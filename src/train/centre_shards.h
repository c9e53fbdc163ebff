// The class centres of a margin head and their optimizer state in checkpoints.
//
// They lie in files `centres-00001-of-00003.safetensors`, each with a range of the classes: the
// rows of that range of the centres, then those of each state, as they are stored on the devices.
// The manifest and the files' metadata say which classes. Any number of devices can read any number
// of shards; rows pass through a few megabytes of memory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "train/checkpoint.h"
#include "train/job_state.h"

namespace millrace::train {

// Gives the rows from `first` on of a tensor.
using RowSource = std::function<void(size_t tensor, int64_t first, std::span<std::byte> bytes)>;

// Writes shards into a directory. `tensors` are whole, with the same number of rows; shard i has
// the rows from bounds[i] to bounds[i + 1]. Files appear under their names in `commit`. One thread
// at a time. Failures throw InputError.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path directory, std::vector<data::SafetensorsTensor> tensors,
              std::vector<int64_t> bounds);

  // Asks the source for every row once. If a file cannot be written the source is still asked to
  // the end, as other processes may have a part in it.
  void write(const RowSource& source);

  std::vector<CheckpointFile> commit();

 private:
  std::vector<data::SafetensorsTensor> tensors_;
  std::vector<int64_t> bounds_;
  std::vector<std::unique_ptr<data::SafetensorsWriter>> files_;
};

// The shards of a checkpoint as one; owns their maps.
class ShardReader {
 public:
  // Throws InputError if shards do not fit together or to the manifest.
  ShardReader(const std::filesystem::path& checkpoint, const Manifest& manifest);

  bool empty() const { return files_.empty(); }
  // Whole; without data.
  const std::vector<data::SafetensorsTensor>& tensors() const { return tensors_; }
  int64_t classes() const { return bounds_.back(); }
  size_t shards() const { return files_.size(); }

  void read(size_t tensor, int64_t first, std::span<std::byte> bytes) const;

 private:
  std::vector<data::SafetensorsFile> files_;
  std::vector<int64_t> bounds_ = {0};
  std::vector<data::SafetensorsTensor> tensors_;
};

// Calls body(first, count) for the rows from `begin` to `end`, a few megabytes at a time.
void each_few_rows(int64_t begin, int64_t end, int64_t row_bytes,
                   const std::function<void(int64_t, int64_t)>& body);

// The job's tensors that are in_rows, as a file has them.
std::vector<data::SafetensorsTensor> centre_tensors(const JobState& state);

// Called by all processes. Writes the centres and state of the job, in the shards that its devices
// have, into `directory` in the first process; null there means that nothing is to be written, as
// in all others. Null is also returned where the job has no centres.
std::unique_ptr<ShardWriter> write_centres(const JobState& state,
                                           const std::filesystem::path* directory);

// Called by all processes; the first one reads. The files must have what the job has.
void load_centres(JobState& state, const std::filesystem::path& checkpoint,
                  const Manifest& manifest);

// Writes the checkpoint with its centres in `shards` shards to `target`, which may be itself.
void cut_checkpoint(const std::filesystem::path& checkpoint, const std::filesystem::path& target,
                    int64_t shards);

}  // namespace millrace::train
