#include "train/checkpoint.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/pattern.h"
#include "train/centre_shards.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr size_t kStepDigits = 8;
constexpr std::string_view kShardPrefix = "centres-";

template <typename T>
T field(const Json& json, const char* name, const std::filesystem::path& path) {
  const auto found = json.find(name);
  if (found != json.end()) {
    try {
      return found->get<T>();
    } catch (const Json::exception&) {
    }
  }
  fail_input("'{}' has no valid field '{}'.", path.string(), name);
}

int64_t count_field(const Json& json, const char* name, const std::filesystem::path& path) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer() || field<double>(json, name, path) < 0 ||
      field<double>(json, name, path) >= 0x1.0p63) {
    fail_input("'{}' has no valid field '{}'.", path.string(), name);
  }
  return found->get<int64_t>();
}

uint32_t checksum_field(const Json& json, const std::filesystem::path& path) {
  const int64_t value = count_field(json, "crc32", path);
  if (value > std::numeric_limits<uint32_t>::max()) {
    fail_input("'{}' has no valid field 'crc32'.", path.string());
  }
  return static_cast<uint32_t>(value);
}

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kStepDigits) return {};
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (status != std::errc() || stop != end || step < 0) return {};
  return step;
}

std::optional<ClassSpan> span_field(const Json& json, const std::filesystem::path& path) {
  const Json bounds = field<Json>(json, "classes", path);
  const auto is_whole = [](const Json& bound) { return bound.is_number_integer(); };
  if (!bounds.is_array() || bounds.size() != 2 ||
      !std::all_of(bounds.begin(), bounds.end(), is_whole)) {
    fail_input("'{}' has no valid field 'classes'.", path.string());
  }
  return ClassSpan{bounds[0].get<int64_t>(), bounds[1].get<int64_t>()};
}

// Beside weights, optimizer and perhaps an average there are exactly the shards, in order and
// without gaps.
void require_shards(std::vector<CheckpointFile> files, const std::filesystem::path& path) {
  std::erase_if(files, [](const CheckpointFile& file) {
    return file.name == kWeightsFile || file.name == kOptimizerFile || file.name == kAverageFile;
  });
  const size_t count = files.size();
  int64_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const CheckpointFile& file = files[i];
    if (file.name != shard_name(i, count)) {
      fail_input("'{}' lists files that do not belong to a checkpoint.", path.string());
    }
    if (file.classes->begin != next || file.classes->end <= next) {
      fail_input("'{}' gives '{}' the classes {} to {} where {} is the next.", path.string(),
                 file.name, file.classes->begin, file.classes->end, next);
    }
    next = file.classes->end;
  }
}

}  // namespace

std::string shard_name(size_t index, size_t count) {
  return fmt::format("{}{:05}-of-{:05}.safetensors", kShardPrefix, index + 1, count);
}

Json to_json(const Manifest& manifest) {
  Json json;
  json["format"] = "millrace-checkpoint-1";
  json["version"] = manifest.version;
  json["model"] = manifest.model;
  json["step"] = manifest.step;
  json["epoch"] = manifest.epoch;
  json["position"] = manifest.position;
  json["seed"] = manifest.seed;
  json["learning_rate"] = manifest.learning_rate;
  json["job"] = manifest.job;
  if (!manifest.loss_scale.is_null()) json["loss_scale"] = manifest.loss_scale;
  if (!manifest.convolutions.empty()) json["convolutions"] = manifest.convolutions;
  if (!manifest.preprocessing.is_null()) json["preprocessing"] = manifest.preprocessing;
  if (manifest.measured) json["measured"] = to_json(*manifest.measured);
  if (!manifest.best.is_null()) json["best"] = manifest.best;
  json["files"] = Json::object();
  for (const CheckpointFile& file : manifest.files) {
    Json& entry = json["files"][file.name];
    entry = {{"bytes", file.bytes}, {"crc32", file.crc32}};
    if (file.classes) entry["classes"] = {file.classes->begin, file.classes->end};
  }
  return json;
}

Manifest parse_manifest(const Json& json, const std::filesystem::path& path) {
  if (!json.is_object() || json.value("format", Json()) != Json("millrace-checkpoint-1")) {
    fail_input("'{}' is not the manifest of a checkpoint.", path.string());
  }
  Manifest manifest;
  manifest.version = field<std::string>(json, "version", path);
  manifest.model = field<std::string>(json, "model", path);
  manifest.step = count_field(json, "step", path);
  manifest.epoch = count_field(json, "epoch", path);
  manifest.position = count_field(json, "position", path);
  if (!json.contains("seed") || !json["seed"].is_number_unsigned())
    fail_input("'{}' has no valid field 'seed'.", path.string());
  manifest.seed = json["seed"].get<uint64_t>();
  manifest.learning_rate = field<Json>(json, "learning_rate", path);
  manifest.job = field<Json>(json, "job", path);
  manifest.loss_scale = json.value("loss_scale", Json());
  manifest.preprocessing = json.value("preprocessing", Json());
  if (json.contains("convolutions")) {
    manifest.convolutions = field<std::map<std::string, std::string>>(json, "convolutions", path);
  }
  // A figure that was no number is written as null, and is as good as none.
  const Json measured = json.value("measured", Json());
  const bool is_no_number = measured.is_object() && measured.value("value", Json(0)).is_null();
  manifest.measured = parse_measured(measured);
  if (json.contains("measured") && !manifest.measured && !is_no_number) {
    fail_input("'{}' has no valid field 'measured'.", path.string());
  }
  manifest.best = json.value("best", Json());
  const Json files = field<Json>(json, "files", path);
  if (!files.is_object()) fail_input("'{}' has no valid field 'files'.", path.string());
  for (const auto& [name, entry] : files.items()) {
    manifest.files.push_back(
        {name, static_cast<uint64_t>(count_field(entry, "bytes", path)),
         checksum_field(entry, path),
         name.starts_with(kShardPrefix) ? span_field(entry, path) : std::optional<ClassSpan>()});
  }
  for (const std::string_view needed : {kWeightsFile, kOptimizerFile}) {
    if (std::none_of(manifest.files.begin(), manifest.files.end(),
                     [&](const CheckpointFile& file) { return file.name == needed; })) {
      fail_input("'{}' does not list '{}'.", path.string(), needed);
    }
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& first, const auto& second) { return first.name < second.name; });
  require_shards(manifest.files, path);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kManifestFile;
  const Json json = parse_json(read_text(path));
  if (json.is_discarded()) fail_input("'{}' is not valid JSON.", path.string());
  return parse_manifest(json, path);
}

Manifest verify_checkpoint(const std::filesystem::path& checkpoint) {
  Manifest manifest = read_manifest(checkpoint);
  for (const CheckpointFile& file : manifest.files) {
    const std::filesystem::path path = checkpoint / file.name;
    std::error_code error;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error) fail_input("Cannot read '{}': {}.", path.string(), error.message());
    if (bytes != file.bytes) {
      fail_input("'{}' has {} bytes where the manifest says {}.", path.string(), bytes, file.bytes);
    }
    if (crc32_of_file(path) != file.crc32) {
      fail_input("'{}' does not have the checksum that the manifest says.", path.string());
    }
  }
  return manifest;
}

namespace {

std::string describe_damage(const CheckpointPlace& place, const InputError& error) {
  return fmt::format("Checkpoint '{}' is damaged and passed over: {}", place.path.string(),
                     error.marked());
}

std::vector<std::string> patterns_in(const Json& job, const char* name) {
  const Json list = job.is_object() ? job.value(name, Json()) : Json();
  std::vector<std::string> patterns;
  for (const Json& one : list) {
    if (one.is_string()) patterns.push_back(one.get<std::string>());
  }
  return patterns;
}

}  // namespace

// Layers that were frozen then have no state of the optimizer yet: it starts as at the beginning.
void load_checkpoint(JobState& state, const std::filesystem::path& checkpoint,
                     const Manifest& manifest) {
  load_tensors(state, checkpoint / kWeightsFile,
               [](const JobTensor& tensor) { return !tensor.in_rows() && is_weight(tensor.role); });
  const auto was_frozen = [freeze = patterns_in(manifest.job, "freeze"),
                           only =
                               patterns_in(manifest.job, "train-only")](const std::string& name) {
    return fits_any(freeze, name) || (!only.empty() && !fits_any(only, name));
  };
  load_tensors(state, checkpoint / kOptimizerFile, [&](const JobTensor& tensor) {
    return !tensor.in_rows() && tensor.role == graph::Role::optimizer_state &&
           !was_frozen(tensor.name);
  });
  load_centres(state, checkpoint, manifest);
}

uint32_t crc32_of_file(const std::filesystem::path& path) {
  constexpr size_t kPiece = size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_input("Cannot open '{}'.", path.string());
  std::vector<char> piece(kPiece);
  uLong sum = ::crc32_z(0, nullptr, 0);
  while (file.read(piece.data(), kPiece) || file.gcount() > 0) {
    sum = ::crc32_z(sum, reinterpret_cast<const Bytef*>(piece.data()),
                    static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) fail_input("Cannot read '{}'.", path.string());
  return static_cast<uint32_t>(sum);
}

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::vector<CheckpointPlace> list_checkpoints(const std::filesystem::path& directory) {
  std::vector<CheckpointPlace> places;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(kFormer)) {
      name.resize(name.size() - kFormer.size());
      if (std::filesystem::exists(directory / name, error)) continue;
    }
    const std::optional<int64_t> step = step_of(name);
    if (step && entry.is_directory(error)) places.push_back({*step, entry.path()});
  }
  std::sort(places.begin(), places.end(),
            [](const auto& first, const auto& second) { return first.step < second.step; });
  return places;
}

std::optional<std::filesystem::path> find_newest_valid(const std::filesystem::path& directory,
                                                       const PassedOver& passed_over) {
  const std::vector<CheckpointPlace> places = list_checkpoints(directory);
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    try {
      const Manifest manifest = verify_checkpoint(place->path);
      if (manifest.step != place->step) {
        fail_input("its manifest belongs to step {}.", manifest.step);
      }
      return place->path;
    } catch (const InputError& error) {
      passed_over(describe_damage(*place, error));
    }
  }
  if (!places.empty()) {
    fail_input("None of the {} checkpoints in '{}' is intact.", places.size(), directory.string());
  }
  return {};
}

std::vector<CheckpointPlace> best_first(const std::vector<CheckpointPlace>& places,
                                        const PassedOver& passed_over) {
  std::vector<std::pair<CheckpointPlace, Measured>> measured;
  for (const CheckpointPlace& place : places) {
    try {
      const Manifest manifest = read_manifest(place.path);
      if (manifest.measured) measured.emplace_back(place, *manifest.measured);
    } catch (const InputError& error) {
      passed_over(describe_damage(place, error));
    }
  }
  if (measured.empty()) return {};
  const std::string metric = measured.back().second.metric;
  std::erase_if(measured, [&](const auto& each) { return each.second.metric != metric; });
  std::stable_sort(measured.begin(), measured.end(), [](const auto& first, const auto& second) {
    return first.second.better_than(second.second);
  });
  std::vector<CheckpointPlace> sorted;
  for (auto& [place, figure] : measured) sorted.push_back(std::move(place));
  return sorted;
}

std::optional<std::filesystem::path> find_best(const std::filesystem::path& directory,
                                               const PassedOver& passed_over) {
  for (const CheckpointPlace& place : best_first(list_checkpoints(directory), passed_over)) {
    try {
      verify_checkpoint(place.path);
      return place.path;
    } catch (const InputError& error) {
      passed_over(describe_damage(place, error));
    }
  }
  return {};
}

void fail_without_checkpoints(const std::filesystem::path& directory) {
  std::error_code error;
  std::vector<std::string> runs;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (!list_checkpoints(entry.path()).empty()) runs.push_back(entry.path().string());
  }
  std::sort(runs.begin(), runs.end());
  fail_input("There is no checkpoint in '{}'{}.", directory.string(),
             runs.empty() ? "" : fmt::format("; '{}' has some", runs.front()));
}

std::filesystem::path newest_checkpoint(const std::filesystem::path& directory,
                                        const PassedOver& passed_over) {
  if (std::filesystem::exists(directory / kManifestFile)) {
    verify_checkpoint(directory);
    return directory;
  }
  const auto found = find_newest_valid(directory, passed_over);
  if (!found) fail_without_checkpoints(directory);
  return *found;
}

}  // namespace millrace::train
