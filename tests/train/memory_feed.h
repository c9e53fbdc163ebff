// A data set in memory, for tests that know every value.
#pragma once

#include "train/feed/feed.h"

namespace millrace::train {

// Images of C×H×W one after the other, and their labels.
struct MemoryData {
  std::vector<float> images = {};
  std::vector<int32_t> labels = {};  // from 0 to classes - 1
};

// Shuffles the data anew each epoch, by seed and epoch alone, and leaves out the incomplete batch
// at its end. Shares the data, which must not change.
std::unique_ptr<Feed> make_memory_feed(std::shared_ptr<const MemoryData> data,
                                       const BatchShape& shape, uint64_t seed,
                                       FeedPosition start = {});

// Goes through the data once in order; the last batch is filled up with rows that do not count.
std::unique_ptr<Feed> make_memory_evaluation_feed(std::shared_ptr<const MemoryData> data,
                                                  const BatchShape& shape);

}  // namespace millrace::train
