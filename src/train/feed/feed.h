// Where batches come from.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rows.h"

namespace millrace::train {

// Where the next batch starts: `index` samples into an epoch.
struct FeedPosition {
  int64_t epoch = 0;
  int64_t index = 0;

  bool operator==(const FeedPosition&) const = default;
};

// Labels of rows that do not count: padding, or records passed over in an evaluation.
inline constexpr int32_t kNoLabel = -1;

// A batch, or the rows of it that the feed was made for, in plain order: images N×C×H×W, labels N.
// The memory belongs to the feed and stays until the next call. Labels are classes of the network,
// from 0; only evaluation feeds have rows that do not count.
struct FeedBatch {
  std::span<const float> images;
  std::span<const int32_t> labels;
  FeedPosition position;  // of the whole batch's first sample
  // For each row the label that it is mixed with and its own share of kWholeShare; empty: none is.
  std::span<const int32_t> mixing = {};
};

// A sequence of batches of one size. Used by one thread; a feed may have threads of its own.
//
// Where a batch is divided over processes, each has a feed of its rows. Feeds of the same job hand
// out the same batches in the same order, positions count whole batches, and rows are the same bits
// as in a feed of all rows.
class Feed {
 public:
  virtual ~Feed() = default;

  // Nothing at the end of an evaluation set; a training feed never ends.
  virtual std::optional<FeedBatch> next() = 0;

  // Where the batch after the last one handed out starts.
  virtual FeedPosition position() const = 0;

  // Every batch is the same, so it need be written only once.
  virtual bool constant() const { return false; }

  // Gives back the memory of the last batch, which is then no longer valid.
  virtual void release() {}

  // Full batches in an epoch; 0 where there are no epochs.
  virtual int64_t batches_per_epoch() const { return 0; }

  // Samples in the data set; 0 where there is none.
  virtual int64_t samples() const { return 0; }

  // How often a record was passed over so far because it could not be read, and a sentence for each
  // of the first such records.
  virtual int64_t skipped() const { return 0; }
  virtual std::vector<std::string> skipped_records() const { return {}; }

  // Where a sample of an evaluation set lies, by its place in the order; empty: nowhere to tell.
  virtual std::string place(int64_t) const { return {}; }

  // Files of the data set that are left out as their names are none of images.
  virtual std::vector<std::string> passed_over() const { return {}; }
};

struct BatchShape {
  int64_t batch = 1;  // of the whole job
  int64_t channels = 3;
  int64_t height = 224;
  int64_t width = 224;
  int64_t classes = 1000;
  std::vector<RowRange> rows = {};  // that the feed hands out; empty: all
};

// Standard normal images and uniform labels from the seed: the same batch for ever.
std::unique_ptr<Feed> make_synthetic_feed(const BatchShape& shape, uint64_t seed,
                                          FeedPosition start = {});

// A batch of the same kind, once.
std::unique_ptr<Feed> make_synthetic_evaluation_feed(const BatchShape& shape, uint64_t seed);

// The rows of the shape out of each batch of a feed that hands out whole ones.
std::unique_ptr<Feed> make_row_feed(std::unique_ptr<Feed> whole, const BatchShape& shape);

}  // namespace millrace::train
