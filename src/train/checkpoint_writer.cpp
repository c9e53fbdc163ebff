#include "train/checkpoint_writer.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace millrace::train {
namespace {

CheckpointFile describe_file(std::string_view name, data::SafetensorsWriter::Written written) {
  return {std::string(name), written.bytes, written.crc32};
}

// The training step goes first: for the processor, and where the disk has a queue that knows of
// priorities, there too. Not last of all on the processor: beside busy neighbours a thread of the
// lowest priority waits seconds for its turn, even to end.
void take_low_priority() {
  constexpr int kNicer = 10;
  constexpr int kBestEffortLowest = (2 << 13) | 7;
  constexpr int kThisThread = 1;
  ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kNicer);
  ::syscall(SYS_ioprio_set, kThisThread, 0, kBestEffortLowest);
}

double seconds_between(std::chrono::steady_clock::time_point start,
                       std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace

uint64_t write_checkpoint(PartialCheckpoint& partial, Manifest manifest,
                          const StateSnapshot& snapshot, ShardWriter* centres,
                          const StateSnapshot& average) {
  const std::map<std::string, std::string> about = {{"format", "pt"}, {"model", manifest.model}};
  const auto weights = write_tensors(partial.path() / kWeightsFile, snapshot, is_weight, about);
  const auto state =
      write_tensors(partial.path() / kOptimizerFile, snapshot,
                    [](graph::Role role) { return role == graph::Role::optimizer_state; }, {});
  manifest.files = {describe_file(kWeightsFile, weights), describe_file(kOptimizerFile, state)};
  if (!average.empty()) {
    const auto written = write_tensors(partial.path() / kAverageFile, average, is_weight, about);
    manifest.files.push_back(describe_file(kAverageFile, written));
  }
  if (centres != nullptr) {
    for (CheckpointFile& file : centres->commit()) manifest.files.push_back(std::move(file));
  }
  partial.publish(manifest);
  uint64_t bytes = 0;
  for (const CheckpointFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

uint64_t checkpoint_bytes(const JobState& state, bool with_average) {
  constexpr uint64_t kHeaders = uint64_t{1} << 16;
  uint64_t bytes = kHeaders;
  for (const JobTensor& tensor : state.tensors()) {
    const graph::DataType written = tensor.in_rows() ? tensor.stored : graph::DataType::f32;
    const auto size =
        static_cast<uint64_t>(graph::elements_of(tensor.shape) * graph::size_of(written));
    bytes += size;
    if (with_average && is_weight(tensor.role) && !tensor.in_rows()) bytes += size;
  }
  return bytes;
}

void contribute(const JobState& state) {
  StateSnapshot nothing;
  take_snapshot(state, nothing);
  write_centres(state, nullptr);
}

CheckpointWriter::CheckpointWriter(std::filesystem::path directory, int keep, CheckpointLock* lock)
    : directory_(std::move(directory)), keep_(keep), lock_(lock) {
  try {
    std::filesystem::create_directories(directory_);
    remove_leftovers(directory_);
  } catch (const std::filesystem::filesystem_error& error) {
    fail_input("‹checkpoint› names '{}', which cannot be used: {}.", directory_.string(),
               error.code().message());
  }
  require_writable(directory_ / kManifestFile, "‹checkpoint›");
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

void CheckpointWriter::save(const JobState& state, Manifest manifest,
                            const StateSnapshot* average) {
  const auto start = Clock::now();
  wait();
  take_snapshot(state, snapshot_);
  average_ = average == nullptr ? StateSnapshot() : *average;
  centres_.reset();
  early_failure_.clear();
  was_gone_ = false;
  try {
    if (lock_ != nullptr) was_gone_ = lock_->renew();
    early_failure_ = lack_of_space(state, average != nullptr);
    if (early_failure_.empty()) {
      partial_ = std::make_unique<PartialCheckpoint>(directory_ / checkpoint_name(manifest.step));
    }
  } catch (const InputError& error) {
    early_failure_ = error.marked();
  } catch (const std::filesystem::filesystem_error& error) {
    early_failure_ =
        fmt::format("Cannot write '{}': {}.", directory_.string(), error.code().message());
  }
  try {
    centres_ = write_centres(state, partial_ ? &partial_->path() : nullptr);
  } catch (const InputError& error) {
    early_failure_ = error.marked();
  }
  {
    const std::lock_guard lock(mutex_);
    pending_ = std::move(manifest);
    write_start_ = Clock::now();
    pause_seconds_ = seconds_between(start, write_start_);
  }
  changed_.notify_all();
}

std::string CheckpointWriter::lack_of_space(const JobState& state, bool with_average) const {
  const uint64_t needed = checkpoint_bytes(state, with_average);
  const uint64_t there = free_bytes(directory_);
  if (there >= needed) return {};
  return fmt::format("A checkpoint takes {}, and the disk of '{}' has {} left.",
                     format_bytes(needed), directory_.string(), format_bytes(there));
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

std::string CheckpointWriter::prune(int64_t newest) const {
  try {
    prune_checkpoints(directory_, keep_, newest);
    return {};
  } catch (const std::filesystem::filesystem_error& error) {
    return fmt::format("Cannot remove '{}': {}.", error.path1().string(), error.code().message());
  } catch (const std::exception& error) {
    return marked_text(error);
  }
}

void CheckpointWriter::work() {
  take_low_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || pending_; });
    if (!pending_) return;
    const Manifest manifest = *pending_;
    Outcome outcome = {{.step = manifest.step,
                        .directory = directory_ / checkpoint_name(manifest.step),
                        .pause_seconds = pause_seconds_},
                       {},
                       {},
                       {},
                       was_gone_};
    lock.unlock();
    try {
      if (!early_failure_.empty()) throw InputError(early_failure_);
      outcome.report.bytes =
          write_checkpoint(*partial_, manifest, snapshot_, centres_.get(), average_);
      outcome.not_flushed = partial_->not_flushed();
    } catch (const std::filesystem::filesystem_error& error) {
      outcome.failure = fmt::format("Cannot write '{}': {}.", outcome.report.directory.string(),
                                    error.code().message());
    } catch (const std::exception& error) {
      outcome.failure = marked_text(error);
    }
    if (outcome.failure.empty()) outcome.not_pruned = prune(manifest.step);
    centres_.reset();
    partial_.reset();
    lock.lock();
    write_end_ = Clock::now();
    outcome.report.seconds = seconds_between(write_start_, write_end_);
    outcomes_.push_back(std::move(outcome));
    pending_.reset();
    changed_.notify_all();
  }
}

}  // namespace millrace::train
