// Batches of images, prepared by worker threads ahead of the training step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/rows.h"
#include "base/untouched.h"
#include "data/image/transform.h"
#include "data/mixing.h"
#include "data/order.h"
#include "data/record_source.h"

namespace millrace::data {

// What becomes of the last samples of an epoch that do not fill a batch.
enum class LastBatch {
  drop,  // training: left out of this epoch
  pad,   // evaluation: the batch is filled up with rows that do not count
};

enum class BadRecords {
  fail,  // stop with the file, record number and byte offset
  skip,  // training: the next good record of the order takes its place; evaluation: its row
         // does not count
};

struct LoaderOptions {
  TransformOptions transform;
  int64_t batch = 32;  // samples per batch of the whole job
  // The rows of each batch that this loader prepares, decoding no others; empty: all. They hold
  // the same bits whatever the others are.
  std::vector<RowRange> rows = {};
  uint64_t seed = 0;
  bool shuffle = true;
  bool balanced = false;  // instead: draw classes alike (BalancedOrder)
  MixSettings mix = {};   // images in nchw
  LastBatch last_batch = LastBatch::drop;
  BadRecords bad_records = BadRecords::fail;
  uint64_t epochs = 0;  // 0: endless
  uint64_t start_epoch = 0;
  uint64_t start_position = 0;
  int workers = 2;
  int prefetch = 4;          // batches prepared ahead, at least 1
  int64_t classes = 0;       // labels must be below; 0 does not check
  int64_t label_offset = 0;  // subtracted from every label: 1 for sets that count from 1
};

// One batch, or the rows of it that were asked for: images in the layout asked for, one label per
// row. Rows that do not count (padding, or a bad record skipped in evaluation) have label −1 and
// zero pixels.
struct Batch {
  uint64_t epoch = 0;
  uint64_t position = 0;       // of the whole batch's first row, in the order of the epoch
  uint64_t next_position = 0;  // where a run that stops after this batch goes on
  int64_t valid = 0;           // rows with a label
  int64_t skipped = 0;         // bad records met
  UntouchedVector<float> images;
  std::vector<int32_t> labels;
  // Where rows are mixed, for each: the label of the other, and the own share of kWholeShare.
  std::vector<int32_t> mixing;
};

struct LoaderStatistics {
  uint64_t batches = 0;
  double seconds_waited = 0;  // time that `next` was blocked, in all
  uint64_t skipped = 0;
  std::vector<std::string> skipped_records;  // descriptions of the first 20
};

// Prepares batches in the background. What they hold is a function of the source and the options
// without `workers` and `prefetch`. One thread calls `next` and `statistics`; the loader owns its
// worker threads and joins them when destroyed. Memory: prefetch + 1 batches.
class Loader {
 public:
  // Throws InputError if the options make no batch.
  Loader(std::shared_ptr<const RecordSource> source, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Waits for the next batch and exchanges it with `batch`, whose memory is used again. False
  // after the last epoch. Throws InputError for a bad record if that is the policy.
  bool next(Batch& batch);

  // Batches of a whole epoch.
  uint64_t batches_per_epoch() const { return batches_per_epoch(0); }
  const LoaderStatistics& statistics() const { return statistics_; }

 private:
  struct Slot;

  uint64_t batches_per_epoch(uint64_t start) const;
  void advance();
  void start_batch(Slot& slot);
  void work(Transformer& transformer);
  // Memory for a batch, or the error that there is none.
  std::exception_ptr make_room(Slot& slot) const;
  std::exception_ptr out_of_memory() const;
  void stop();
  void mix(Batch& batch);
  int64_t row_count() const { return static_cast<int64_t>(rows_.size()); }
  void fill_row(Slot& slot, int64_t row, Transformer& transformer);
  bool try_record(Slot& slot, uint64_t index, uint64_t position, int64_t row,
                  Transformer& transformer);

  std::shared_ptr<const RecordSource> source_;
  LoaderOptions options_;
  std::vector<int64_t> rows_;  // of the whole batch, prepared here: those asked for, then partners
  size_t asked_ = 0;           // of them are handed out
  std::optional<BalancedOrder> balanced_;
  int64_t rows_per_task_ = 1;
  LoaderStatistics statistics_;

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable batch_ready_;
  std::vector<std::unique_ptr<Slot>> slots_;
  uint64_t produced_ = 0;  // batches started so far; slot = number % slots
  uint64_t consumed_ = 0;
  uint64_t epoch_ = 0;        // of the next batch to start
  uint64_t epoch_start_ = 0;  // position where that epoch began
  uint64_t batch_in_epoch_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace millrace::data
