#include "train/checkpoint_writer.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/file.h"

namespace millrace {
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

void remove_leftovers(const std::filesystem::path& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && (name.ends_with(kPartial) || name.ends_with(kRemoving))) {
      std::filesystem::remove_all(entry.path());
    }
  }
}

CheckpointFile describe_file(std::string_view name, SafetensorsWriter::Written written) {
  return {std::string(name), written.bytes, written.crc32};
}

// The training step goes first: for the processor, and where the disk has a queue that knows of
// priorities, there too.
void take_lowest_priority() {
  constexpr int kLowest = 19;
  constexpr int kBestEffortLowest = (2 << 13) | 7;
  constexpr int kThisThread = 1;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kLowest);
  ::syscall(SYS_ioprio_set, kThisThread, 0, kBestEffortLowest);
}

double seconds_between(std::chrono::steady_clock::time_point start,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

uint64_t write_checkpoint(const std::filesystem::path& directory, Manifest manifest,
                          const StateSnapshot& snapshot) {
  const std::filesystem::path target = directory / checkpoint_name(manifest.step);
  const std::filesystem::path partial = with_ending(target, kPartial);
  std::filesystem::remove_all(partial);
  std::filesystem::create_directory(partial);
  try {
    const auto weights = write_tensors(partial / kWeightsFile, snapshot, is_weight,
                                       {{"format", "pt"}, {"model", manifest.model}});
    const auto state = write_tensors(partial / kOptimizerFile, snapshot,
                                     [](Role role) { return role == Role::optimizer_state; }, {});
    manifest.files = {describe_file(kWeightsFile, weights), describe_file(kOptimizerFile, state)};
    write_text(partial / kManifestFile, to_json(manifest).dump(2) + "\n");
    sync_directory(partial);
    if (std::filesystem::exists(target)) remove_checkpoint(target);
    std::filesystem::rename(partial, target);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(partial, ignored);
    throw;
  }
  sync_directory(directory);
  return manifest.files[0].bytes + manifest.files[1].bytes;
}

void prune_checkpoints(const std::filesystem::path& directory, int keep, int64_t newest) {
  std::vector<CheckpointPlace> places = list_checkpoints(directory);
  std::erase_if(places, [&](const CheckpointPlace& place) { return place.step > newest; });
  if (places.size() <= static_cast<size_t>(keep)) return;
  std::optional<double> best;
  std::filesystem::path best_path;
  for (const CheckpointPlace& place : places) {
    try {
      const Manifest manifest = read_manifest(place.path);
      if (manifest.accuracy && (!best || *manifest.accuracy > *best)) {
        best = manifest.accuracy;
        best_path = place.path;
      }
    } catch (const InputError&) {
      continue;
    }
  }
  for (size_t i = 0; i + static_cast<size_t>(keep) < places.size(); ++i) {
    if (places[i].path != best_path) remove_checkpoint(places[i].path);
  }
}

CheckpointWriter::CheckpointWriter(std::filesystem::path directory, int keep)
    : directory_(std::move(directory)), keep_(keep) {
  try {
    std::filesystem::create_directories(directory_);
    remove_leftovers(directory_);
  } catch (const std::filesystem::filesystem_error& error) {
    fail_input("--checkpoint names '{}', which cannot be used: {}.", directory_.string(),
               error.code().message());
  }
  require_writable(directory_ / kManifestFile, "--checkpoint");
  thread_ = std::thread([this] { work(); });
}

CheckpointWriter::~CheckpointWriter() {
  wait();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointWriter::save(const JobState& state, Manifest manifest) {
  const auto start = Clock::now();
  wait();
  take_snapshot(state, snapshot_);
  {
    const std::lock_guard lock(mutex_);
    pending_ = std::move(manifest);
    write_start_ = Clock::now();
    pause_seconds_ = seconds_between(start, write_start_);
  }
  changed_.notify_all();
}

std::vector<CheckpointWriter::Outcome> CheckpointWriter::take_outcomes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(outcomes_, {});
}

double CheckpointWriter::seconds_writing_since(Clock::time_point start) {
  const std::lock_guard lock(mutex_);
  const auto end = pending_ ? Clock::now() : write_end_;
  return std::max(0.0, seconds_between(std::max(start, write_start_), end));
}

void CheckpointWriter::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !pending_; });
}

void CheckpointWriter::work() {
  take_lowest_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_; });
    if (!pending_) return;
    const Manifest manifest = *pending_;
    Outcome outcome = {{.step = manifest.step,
                        .directory = directory_ / checkpoint_name(manifest.step),
                        .pause_seconds = pause_seconds_},
                       {}};
    lock.unlock();
    try {
      outcome.report.bytes = write_checkpoint(directory_, manifest, snapshot_);
      prune_checkpoints(directory_, keep_, manifest.step);
    } catch (const std::filesystem::filesystem_error& error) {
      outcome.failure = fmt::format("Cannot write '{}': {}.", outcome.report.directory.string(),
                                    error.code().message());
    } catch (const std::exception& error) {
      outcome.failure = error.what();
    }
    lock.lock();
    write_end_ = Clock::now();
    outcome.report.seconds = seconds_between(write_start_, write_end_);
    outcomes_.push_back(std::move(outcome));
    pending_.reset();
    changed_.notify_all();
  }
}

}  // namespace millrace
