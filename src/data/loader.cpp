#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <new>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/lost_pages.h"
#include "base/text.h"

namespace millrace::data {
namespace {

constexpr uint64_t kAugmentStream = 0x6175676D656E74;
constexpr uint64_t kMixStream = 0x6D6978;
constexpr uint64_t kReplacementTries = 1000;
constexpr size_t kDescribedRecords = 20;
constexpr int64_t kValuesPerTask = 1 << 16;

std::vector<std::vector<uint64_t>> records_by_class(const RecordSource& source) {
  std::map<int64_t, std::vector<uint64_t>> classes;
  for (uint64_t i = 0; i < source.count(); ++i) {
    const std::optional<int64_t> label = source.label(i);
    if (!label) {
      fail_input(
          "‹sampler› balanced needs data that tells its labels at once: folder, idx or raw.");
    }
    classes[*label].push_back(i);
  }
  std::vector<std::vector<uint64_t>> records;
  for (auto& [label, own] : classes) records.push_back(std::move(own));
  return records;
}

int64_t partner_of(int64_t row, int64_t batch) { return (row + batch - 1) % batch; }

// Rows that others are mixed with are prepared too.
void add_partners(std::vector<int64_t>& rows, int64_t batch) {
  const std::set<int64_t> asked(rows.begin(), rows.end());
  for (const int64_t row : asked) {
    if (!asked.contains(partner_of(row, batch))) rows.push_back(partner_of(row, batch));
  }
}

// A set may have few records because damage hides the rest.
void check_records(const RecordSource& source) {
  for (uint64_t index = 0; index < source.count(); ++index) {
    try {
      source.read(index);
    } catch (const BadData& error) {
      fail_input("{}", describe_bad_record(source.place(index), error.what()));
    }
  }
}

}  // namespace

// A batch in the making. `next_row`, `rows_done` and the error fields are guarded by the loader's
// mutex; rows are written without it by the worker that took them.
struct Loader::Slot {
  Batch batch;
  int64_t rows = 0;  // of the whole batch, without padding
  int64_t next_row = 0;
  int64_t rows_done = 0;
  int64_t failed_row = INT64_MAX;
  std::exception_ptr error;
  std::vector<std::pair<int64_t, std::string>> skipped;  // row and description
};

Loader::Loader(std::shared_ptr<const RecordSource> source, const LoaderOptions& options)
    : source_(std::move(source)),
      options_(options),
      rows_(rows_of(options.rows, options.batch)),
      epoch_(options.start_epoch),
      epoch_start_(options.start_position) {
  if (options.batch < 1 || options.workers < 1 || options.prefetch < 1) {
    fail_input(
        "The loader needs at least one sample per batch, one worker and one batch of prefetch.");
  }
  const uint64_t count = source_->count();
  if (batches_per_epoch(0) == 0) {
    check_records(*source_);
    fail_input("The data set has {} samples, fewer than one batch of {}; use a smaller ‹batch›.",
               count, options.batch);
  }
  if (options.start_position > count) {
    fail_input("The run cannot start at position {} of a data set with {} samples.",
               options.start_position, count);
  }
  asked_ = rows_.size();
  if (options.mix.enabled()) add_partners(rows_, options.batch);
  if (options.balanced) balanced_.emplace(records_by_class(*source_));
  const int64_t values = options.transform.values();
  rows_per_task_ = std::clamp<int64_t>(kValuesPerTask / values, 1, options.batch);
  for (int i = 0; i < options.prefetch; ++i) slots_.push_back(std::make_unique<Slot>());
  advance();
  try {
    for (int i = 0; i < options.workers; ++i) {
      const auto transformer = std::make_shared<Transformer>(options.transform);
      workers_.emplace_back([this, transformer] { work(*transformer); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

Loader::~Loader() { stop(); }

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

uint64_t Loader::batches_per_epoch(uint64_t start) const {
  const uint64_t count = source_->count() - std::min(source_->count(), start);
  const auto batch = static_cast<uint64_t>(options_.batch);
  const bool pad = options_.last_batch == LastBatch::pad;
  return (count + (pad ? batch - 1 : 0)) / batch;
}

// Starts batches in every free slot. Called with the mutex held (or before the workers start).
void Loader::advance() {
  while (produced_ < consumed_ + slots_.size()) {
    while (batch_in_epoch_ == batches_per_epoch(epoch_start_)) {
      ++epoch_;
      epoch_start_ = 0;
      batch_in_epoch_ = 0;
    }
    if (options_.epochs > 0 && epoch_ >= options_.epochs) return;
    start_batch(*slots_[produced_ % slots_.size()]);
    ++produced_;
    ++batch_in_epoch_;
  }
}

void Loader::start_batch(Slot& slot) {
  const uint64_t count = source_->count();
  const auto batch = static_cast<uint64_t>(options_.batch);
  const uint64_t first = epoch_start_ + batch_in_epoch_ * batch;
  slot.batch.epoch = epoch_;
  slot.batch.position = first;
  slot.batch.next_position = std::min(count, first + batch);
  const uint64_t left = count - std::min(count, slot.batch.position);
  slot.rows = static_cast<int64_t>(std::min(left, batch));
  slot.next_row = 0;
  slot.rows_done = 0;
  slot.failed_row = INT64_MAX;
  slot.error = nullptr;
  slot.skipped.clear();
}

// Whatever goes wrong in a worker is the batch's error, for `next` to throw.
void Loader::work(Transformer& transformer) {
  std::unique_lock lock(mutex_);
  while (true) {
    Slot* slot = nullptr;
    work_ready_.wait(lock, [&] {
      for (uint64_t i = consumed_; slot == nullptr && i < produced_; ++i) {
        Slot& candidate = *slots_[i % slots_.size()];
        if (candidate.next_row < row_count()) slot = &candidate;
      }
      return stopping_ || slot != nullptr;
    });
    if (stopping_) return;
    const int64_t first = slot->next_row;
    std::exception_ptr error = first == 0 ? make_room(*slot) : nullptr;
    const int64_t last = error ? row_count() : std::min(row_count(), first + rows_per_task_);
    slot->next_row = last;
    lock.unlock();
    int64_t row = first;
    try {
      for (; !error && row < last; ++row) fill_row(*slot, row, transformer);
    } catch (const std::bad_alloc&) {
      error = out_of_memory();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && row < slot->failed_row) {
      slot->failed_row = row;
      slot->error = error;
    }
    slot->rows_done += last - first;
    if (slot->rows_done == row_count()) batch_ready_.notify_one();
  }
}

std::exception_ptr Loader::make_room(Slot& slot) const {
  try {
    slot.batch.labels.resize(rows_.size());
    slot.batch.images.resize(rows_.size() * static_cast<size_t>(options_.transform.values()));
    return nullptr;
  } catch (const std::exception&) {
    return out_of_memory();
  }
}

std::exception_ptr Loader::out_of_memory() const {
  const uint64_t batch = rows_.size() * static_cast<uint64_t>(options_.transform.values());
  return std::make_exception_ptr(
      JobError(fmt::format("There is not enough memory for the loader: a batch takes {}, of which "
                           "{} are prepared ahead; "
                           "use a smaller ‹batch›.",
                           format_bytes(batch * sizeof(float)), options_.prefetch)));
}

void Loader::fill_row(Slot& slot, int64_t row, Transformer& transformer) {
  const uint64_t count = source_->count();
  const int64_t row_of_batch = rows_[static_cast<size_t>(row)];
  const uint64_t position = slot.batch.position + static_cast<uint64_t>(row_of_batch);
  if (row_of_batch < slot.rows) {
    const ShuffledOrder order(count, options_.seed, slot.batch.epoch);
    const bool replace = options_.last_batch == LastBatch::drop;
    const uint64_t tries = replace ? std::min(count, kReplacementTries) : 1;
    for (uint64_t step = 0; step < tries; ++step) {
      const uint64_t place = (position + step) % count;
      uint64_t index = options_.shuffle ? order.at(place) : place;
      if (balanced_)
        index = balanced_->at(position + step * count, options_.seed, slot.batch.epoch);
      if (try_record(slot, index, position, row, transformer)) return;
    }
    if (replace) fail_input("{} records in a row are bad; check the data set.", tries);
  }
  const int64_t values = options_.transform.values();
  std::fill_n(slot.batch.images.begin() + row * values, values, 0.0f);
  slot.batch.labels[static_cast<size_t>(row)] = -1;
}

// False if the record is bad and is to be skipped.
bool Loader::try_record(Slot& slot, uint64_t index, uint64_t position, int64_t row,
                        Transformer& transformer) {
  try {
    const Sample sample = source_->read(index);
    int64_t label = 0;
    if (__builtin_sub_overflow(sample.label, options_.label_offset, &label) || label < 0 ||
        label > INT32_MAX || (options_.classes > 0 && label >= options_.classes)) {
      fail_data("its label {} is outside {} to {}", sample.label, options_.label_offset,
                options_.label_offset + (options_.classes > 0 ? options_.classes : INT32_MAX) - 1);
    }
    const uint64_t stream = hash_combine(hash_combine(kAugmentStream, slot.batch.epoch), position);
    transformer.apply(sample, Random(options_.seed, stream),
                      slot.batch.images.data() + row * options_.transform.values());
    expect_no_lost_pages();
    slot.batch.labels[static_cast<size_t>(row)] = static_cast<int32_t>(label);
    return true;
  } catch (const BadData& error) {
    expect_no_lost_pages();  // the record may be fine
    std::string description = describe_bad_record(source_->place(index), error.what());
    if (options_.bad_records == BadRecords::fail) {
      fail_input("{} Use ‹on_bad_record› skip to go on without such records.", description);
    }
    const std::lock_guard lock(mutex_);
    slot.skipped.emplace_back(row, std::move(description));
    return false;
  }
}

bool Loader::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  if (consumed_ == produced_) return false;
  Slot& slot = *slots_[consumed_ % slots_.size()];
  if (slot.rows_done < row_count()) {
    const auto start = std::chrono::steady_clock::now();
    batch_ready_.wait(lock, [&] { return slot.rows_done == row_count(); });
    statistics_.seconds_waited +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  if (slot.error) std::rethrow_exception(slot.error);
  std::stable_sort(slot.skipped.begin(), slot.skipped.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string>& told = statistics_.skipped_records;
  for (auto& [row, description] : slot.skipped) {
    if (told.size() >= kDescribedRecords) break;
    if (std::ranges::find(told, description) == told.end()) told.push_back(std::move(description));
  }
  slot.batch.skipped = static_cast<int64_t>(slot.skipped.size());
  slot.batch.valid = std::count_if(slot.batch.labels.begin(), slot.batch.labels.end(),
                                   [](int32_t label) { return label >= 0; });
  statistics_.skipped += slot.skipped.size();
  ++statistics_.batches;
  std::swap(batch, slot.batch);
  ++consumed_;
  advance();
  lock.unlock();
  work_ready_.notify_all();
  if (options_.mix.enabled()) mix(batch);
  return true;
}

// From the last row to the first, so that each one's partner is still as it was; the first row's,
// which is the last, is kept.
void Loader::mix(Batch& batch) {
  const uint64_t stream = hash_combine(hash_combine(kMixStream, batch.epoch), batch.position);
  const TransformOptions& shape = options_.transform;
  const Mix mix = draw_mix(options_.mix, Random(options_.seed, stream), shape.height, shape.width);
  const auto values = static_cast<size_t>(shape.values());
  std::map<int64_t, size_t> places;
  for (size_t i = 0; i < rows_.size(); ++i) places[rows_[i]] = i;
  const size_t last = places.rbegin()->second;
  const std::vector<float> kept(batch.images.begin() + static_cast<int64_t>(last * values),
                                batch.images.begin() + static_cast<int64_t>((last + 1) * values));
  batch.mixing.resize(2 * asked_);
  for (auto row = places.rbegin(); row != places.rend(); ++row) {
    if (row->second >= asked_) continue;
    const size_t other = places.at(partner_of(row->first, options_.batch));
    const float* from = other == last ? kept.data() : batch.images.data() + other * values;
    mix_images(mix, shape.channels, shape.height, shape.width,
               batch.images.data() + row->second * values, from);
    batch.mixing[2 * row->second] = batch.labels[other];
    batch.mixing[2 * row->second + 1] = static_cast<int32_t>(std::lround(mix.share * kWholeShare));
  }
  batch.images.resize(asked_ * values);
  batch.labels.resize(asked_);
  batch.valid = static_cast<int64_t>(asked_);
}

}  // namespace millrace::data
