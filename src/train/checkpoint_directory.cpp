#include "train/checkpoint_directory.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

namespace millrace::train {
namespace {

constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoving = ".removing";

std::filesystem::path with_ending(std::filesystem::path path, std::string_view ending) {
  path += ending;
  return path;
}

// Renames first, so that a half-removed directory is never taken for a checkpoint.
void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path doomed = with_ending(path, kRemoving);
  std::filesystem::remove_all(doomed);
  std::filesystem::rename(path, doomed);
  std::filesystem::remove_all(doomed);
}

}  // namespace

PartialCheckpoint::PartialCheckpoint(std::filesystem::path target)
    : target_(std::move(target)), path_(with_ending(target_, kPartial)) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directory(path_);
  if (std::filesystem::exists(target_)) std::filesystem::remove_all(with_ending(target_, kFormer));
}

PartialCheckpoint::~PartialCheckpoint() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void PartialCheckpoint::publish(const Manifest& manifest) {
  write_text(path_ / kManifestFile, to_json(manifest).dump(2) + "\n");
  const std::filesystem::path former = with_ending(target_, kFormer);
  struct stat made = {};
  ::stat(path_.c_str(), &made);
  try {
    replace_directory(path_, target_, former);
  } catch (const InputError& error) {
    struct stat named = {};
    const bool is_there = ::stat(target_.c_str(), &named) == 0 && named.st_ino == made.st_ino;
    if (!is_there) throw;
    not_flushed_ = marked_text(error);
  }
  std::error_code ignored;  // the checkpoint is there; what it replaced may be cleared up later
  std::filesystem::remove_all(former, ignored);
}

void remove_leftovers(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-")) continue;
    if (name.ends_with(kPartial) || name.ends_with(kRemoving)) {
      std::filesystem::remove_all(entry.path());
    } else if (name.ends_with(kFormer)) {
      const std::filesystem::path own = name.substr(0, name.size() - kFormer.size());
      if (std::filesystem::exists(directory / own)) {
        std::filesystem::remove_all(entry.path());
      } else {
        std::filesystem::rename(entry.path(), directory / own);
      }
    }
  }
}

void prune_checkpoints(const std::filesystem::path& directory, int keep, int64_t newest) {
  std::vector<CheckpointPlace> places = list_checkpoints(directory);
  std::erase_if(places, [&](const CheckpointPlace& place) { return place.step > newest; });
  if (places.size() <= static_cast<size_t>(keep)) return;
  const std::vector<CheckpointPlace> best = best_first(places, [](std::string_view) {});
  for (size_t i = 0; i + static_cast<size_t>(keep) < places.size(); ++i) {
    if (best.empty() || places[i].path != best[0].path) remove_checkpoint(places[i].path);
  }
}

}  // namespace millrace::train
