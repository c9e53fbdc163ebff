// Checkpoints on disk: what they hold, finding and reading them.
//
// A checkpoint is a directory `step-00001234` with weights.safetensors (parameters and buffers
// under torchvision's names), optimizer.safetensors and manifest.json; with --ema also with
// average.safetensors, the averaged weights; with a margin head also with the shards of its centres
// (centre_shards.h). It is written under the
// name `step-00001234.partial`, flushed and renamed, so a directory without that ending is
// complete unless the disk damaged it; sizes and checksums in the manifest tell.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "train/job_state.h"
#include "train/metric.h"

namespace millrace::train {

struct ClassSpan {
  int64_t begin = 0;
  int64_t end = 0;
};

struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
  std::optional<ClassSpan> classes = {};  // of a shard of a head's centres
};

// Everything besides tensors that a run needs to go on exactly. Random numbers and learning
// rates are functions of (seed, step), so these two are their whole state. Plain data.
struct Manifest {
  std::string version;  // of Millrace
  std::string model;
  int64_t step = 0;  // finished steps
  int64_t epoch = 0;
  int64_t position = 0;  // samples taken from the epoch
  uint64_t seed = 0;
  Json learning_rate;  // to_json(LearningRateSettings)
  Json job;            // settings that a resumed run is compared with
  Json loss_scale;     // LossScaleState and Engine::skipped_updates, or null
  std::map<std::string, std::string> convolutions;  // Engine::convolutions
  Json preprocessing;                               // to_json(ImageRecipe), or null
  std::optional<Measured> measured;                 // of an evaluation at this very step
  Json best;                                        // BestModel::record, or null
  std::vector<CheckpointFile> files;
};

inline constexpr std::string_view kWeightsFile = "weights.safetensors";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kAverageFile = "average.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";

inline constexpr int64_t kMostShards = 99999;

// "centres-00001-of-00003.safetensors" for the first of three.
std::string shard_name(size_t index, size_t count);

Json to_json(const Manifest& manifest);

// The reverse; `path` is named in errors.
Manifest parse_manifest(const Json& json, const std::filesystem::path& path);

// Reads and checks the manifest alone. Takes any bytes; throws InputError naming the file and
// the field at fault.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// Reads the manifest and compares sizes and checksums of all files with it. Throws InputError.
Manifest verify_checkpoint(const std::filesystem::path& checkpoint);

// Writes parameters, buffers and optimizer state of a checkpoint into the job.
void load_checkpoint(JobState& state, const std::filesystem::path& checkpoint,
                     const Manifest& manifest);

// Reads in pieces: a map of the file would count as memory of the process.
uint32_t crc32_of_file(const std::filesystem::path& path);

// "step-00001234".
std::string checkpoint_name(int64_t step);

// A checkpoint directory found in a run's directory, by its name alone.
struct CheckpointPlace {
  int64_t step = 0;
  std::filesystem::path path;
};

// The ending of a checkpoint that another of its step is about to replace, on a file system where
// that takes two moments; it counts while there is no other.
inline constexpr std::string_view kFormer = ".former";

// Oldest first. Empty if the directory does not exist.
std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& directory);

// Receives a sentence for each checkpoint that is damaged.
using PassedOver = std::function<void(std::string_view)>;

// The newest that passes verify_checkpoint, with a sentence for each newer one that does not.
// Throws InputError if there are checkpoints but none is intact.
std::optional<std::filesystem::path> find_newest_valid(const std::filesystem::path& directory,
                                                       const PassedOver& passed_over);

// Those whose manifests tell a figure of the metric that the newest of them tells, the best first.
std::vector<CheckpointPlace> best_first(const std::vector<CheckpointPlace>& places,
                                        const PassedOver& passed_over);

// The best of them that passes verify_checkpoint, if there is one.
std::optional<std::filesystem::path> find_best(const std::filesystem::path& directory,
                                               const PassedOver& passed_over);

// Throws InputError: there is none, but perhaps in a directory below, which is named then.
[[noreturn]] void fail_without_checkpoints(const std::filesystem::path& directory);

// As find_newest_valid, but the directory may be a checkpoint itself, and there must be one.
std::filesystem::path newest_checkpoint(const std::filesystem::path& directory,
                                        const PassedOver& passed_over);

}  // namespace millrace::train
