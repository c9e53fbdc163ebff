#include <algorithm>

#include "base/error.h"
#include "data/order.h"
#include "train/feed/feed.h"

namespace millrace {
namespace {

int64_t image_elements(const BatchShape& shape) {
  return shape.channels * shape.height * shape.width;
}

void check(const MemoryData& data, const BatchShape& shape) {
  if (shape.batch < 1 || image_elements(shape) < 1 || shape.classes < 1) {
    fail_input("The extents of a batch must be at least 1.");
  }
  if (data.images.size() != data.labels.size() * static_cast<size_t>(image_elements(shape))) {
    fail_input("{} labels and images of {}x{}x{} need {} values, but there are {}.",
               data.labels.size(), shape.channels, shape.height, shape.width,
               data.labels.size() * static_cast<size_t>(image_elements(shape)), data.images.size());
  }
  for (size_t i = 0; i < data.labels.size(); ++i) {
    if (data.labels[i] < 0 || data.labels[i] >= shape.classes) {
      fail_input("The label of image {} is {}, but there are {} classes, from 0.", i,
                 data.labels[i], shape.classes);
    }
  }
}

// Holds one batch and copies images into its rows.
class MemoryFeed : public Feed {
 public:
  MemoryFeed(std::shared_ptr<const MemoryData> data, const BatchShape& shape, FeedPosition start)
      : data_(std::move(data)), shape_(shape), position_(start) {
    check(*data_, shape_);
    images_.resize(static_cast<size_t>(shape_.batch * image_elements(shape_)));
    labels_.resize(static_cast<size_t>(shape_.batch));
  }
  FeedPosition position() const override { return position_; }
  int64_t batches_per_epoch() const override { return count() / shape_.batch; }

 protected:
  int64_t count() const { return static_cast<int64_t>(data_->labels.size()); }

  void fill(int64_t row, int64_t sample) {
    const int64_t size = image_elements(shape_);
    std::copy_n(data_->images.begin() + sample * size, size, images_.begin() + row * size);
    labels_[static_cast<size_t>(row)] = data_->labels[static_cast<size_t>(sample)];
  }
  void leave_out(int64_t row) {
    const int64_t size = image_elements(shape_);
    std::fill_n(images_.begin() + row * size, size, 0.0f);
    labels_[static_cast<size_t>(row)] = kNoLabel;
  }

  std::shared_ptr<const MemoryData> data_;
  BatchShape shape_;
  FeedPosition position_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

class ShuffledMemoryFeed : public MemoryFeed {
 public:
  ShuffledMemoryFeed(std::shared_ptr<const MemoryData> data, const BatchShape& shape, uint64_t seed,
                     FeedPosition start)
      : MemoryFeed(std::move(data), shape, start), seed_(seed) {
    if (count() < shape_.batch) {
      fail_input("There are {} images, fewer than one batch of {}.", count(), shape_.batch);
    }
  }

  std::optional<FeedBatch> next() override {
    if (position_.index + shape_.batch > count()) position_ = {position_.epoch + 1, 0};
    const ShuffledOrder order(static_cast<uint64_t>(count()), seed_,
                              static_cast<uint64_t>(position_.epoch));
    for (int64_t row = 0; row < shape_.batch; ++row) {
      fill(row, static_cast<int64_t>(order.at(static_cast<uint64_t>(position_.index + row))));
    }
    const FeedBatch batch = {images_, labels_, position_};
    position_.index += shape_.batch;
    return batch;
  }

 private:
  uint64_t seed_;
};

class OrderedMemoryFeed : public MemoryFeed {
 public:
  OrderedMemoryFeed(std::shared_ptr<const MemoryData> data, const BatchShape& shape)
      : MemoryFeed(std::move(data), shape, {}) {}

  std::optional<FeedBatch> next() override {
    if (position_.index >= count()) return {};
    for (int64_t row = 0; row < shape_.batch; ++row) {
      const int64_t sample = position_.index + row;
      if (sample < count()) {
        fill(row, sample);
      } else {
        leave_out(row);
      }
    }
    const FeedBatch batch = {images_, labels_, position_};
    position_.index += shape_.batch;
    return batch;
  }
};

}  // namespace

std::unique_ptr<Feed> make_memory_feed(std::shared_ptr<const MemoryData> data,
                                       const BatchShape& shape, uint64_t seed, FeedPosition start) {
  return std::make_unique<ShuffledMemoryFeed>(std::move(data), shape, seed, start);
}

std::unique_ptr<Feed> make_memory_evaluation_feed(std::shared_ptr<const MemoryData> data,
                                                  const BatchShape& shape) {
  return std::make_unique<OrderedMemoryFeed>(std::move(data), shape);
}

}  // namespace millrace
