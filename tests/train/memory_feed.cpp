#include "memory_feed.h"

#include <algorithm>
#include <stdexcept>

#include "data/order.h"

namespace millrace::train {
namespace {

int64_t image_elements(const BatchShape& shape) {
  return shape.channels * shape.height * shape.width;
}

// Holds one batch and copies images into its rows.
class MemoryFeed : public Feed {
 public:
  MemoryFeed(std::shared_ptr<const MemoryData> data, const BatchShape& shape, FeedPosition start)
      : data_(std::move(data)),
        shape_(shape),
        rows_(rows_of(shape.rows, shape.batch)),
        position_(start) {
    images_.resize(rows_.size() * static_cast<size_t>(image_elements(shape_)));
    labels_.resize(rows_.size());
  }
  FeedPosition position() const override { return position_; }
  int64_t batches_per_epoch() const override { return count() / shape_.batch; }
  int64_t samples() const override { return count(); }

 protected:
  int64_t count() const { return static_cast<int64_t>(data_->labels.size()); }

  // Fills each row with the sample at its place in the batch; -1 leaves it out.
  template <typename SampleAt>
  FeedBatch fill(SampleAt&& sample_at) {
    const int64_t size = image_elements(shape_);
    auto image = images_.begin();
    for (size_t row = 0; row < rows_.size(); ++row, image += size) {
      const int64_t sample = sample_at(position_.index + rows_[row]);
      if (sample >= 0) {
        std::copy_n(data_->images.begin() + sample * size, size, image);
        labels_[row] = data_->labels[static_cast<size_t>(sample)];
      } else {
        std::fill_n(image, size, 0.0f);
        labels_[row] = kNoLabel;
      }
    }
    const FeedBatch batch = {images_, labels_, position_};
    position_.index += shape_.batch;
    return batch;
  }

  std::shared_ptr<const MemoryData> data_;
  BatchShape shape_;
  std::vector<int64_t> rows_;
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
      throw std::logic_error("a data set of less than one batch");
    }
  }

  std::optional<FeedBatch> next() override {
    if (position_.index + shape_.batch > count()) position_ = {position_.epoch + 1, 0};
    const data::ShuffledOrder order(static_cast<uint64_t>(count()), seed_,
                                    static_cast<uint64_t>(position_.epoch));
    return fill([&](int64_t place) {
      return static_cast<int64_t>(order.at(static_cast<uint64_t>(place)));
    });
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
    return fill([&](int64_t place) { return place < count() ? place : -1; });
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

}  // namespace millrace::train
