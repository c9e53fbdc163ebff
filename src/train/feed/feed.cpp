#include "train/feed/feed.h"

#include <span>

#include "base/parallel.h"
#include "base/random.h"

namespace millrace::train {
namespace {

constexpr uint64_t kImageStream = 0x73796e7468696d67;
constexpr uint64_t kLabelStream = 0x73796e74686c6162;

class SyntheticFeed : public Feed {
 public:
  SyntheticFeed(const BatchShape& shape, uint64_t seed, FeedPosition start)
      : shape_(shape), rows_(rows_of(shape.rows, shape.batch)), seed_(seed), position_(start) {}

  std::optional<FeedBatch> next() override {
    if (labels_.size() != rows_.size()) generate();
    const FeedBatch batch = {images_, labels_, position_};
    position_.index += shape_.batch;
    return batch;
  }
  FeedPosition position() const override { return position_; }
  bool constant() const override { return true; }
  void release() override {
    std::vector<float>().swap(images_);
    std::vector<int32_t>().swap(labels_);
  }

 private:
  void generate() {
    const int64_t size = shape_.channels * shape_.height * shape_.width;
    images_.resize(rows_.size() * static_cast<size_t>(size));
    const Random pixels(seed_, kImageStream);
    parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t i) {
      pixels.normals(
          static_cast<uint64_t>(rows_[static_cast<size_t>(i)] * size),
          std::span(images_).subspan(static_cast<size_t>(i * size), static_cast<size_t>(size)));
    });
    labels_.resize(rows_.size());
    const Random classes(seed_, kLabelStream);
    for (size_t i = 0; i < labels_.size(); ++i) {
      labels_[i] = static_cast<int32_t>(
          classes.below(static_cast<uint64_t>(rows_[i]), static_cast<uint64_t>(shape_.classes)));
    }
  }

  BatchShape shape_;
  std::vector<int64_t> rows_;
  uint64_t seed_;
  FeedPosition position_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
};

class SyntheticEvaluationFeed : public Feed {
 public:
  SyntheticEvaluationFeed(const BatchShape& shape, uint64_t seed) : feed_(shape, seed, {}) {}

  std::optional<FeedBatch> next() override {
    if (feed_.position().index > 0) return {};
    return feed_.next();
  }
  FeedPosition position() const override { return feed_.position(); }

 private:
  SyntheticFeed feed_;
};

}  // namespace

std::unique_ptr<Feed> make_synthetic_feed(const BatchShape& shape, uint64_t seed,
                                          FeedPosition start) {
  return std::make_unique<SyntheticFeed>(shape, seed, start);
}

std::unique_ptr<Feed> make_synthetic_evaluation_feed(const BatchShape& shape, uint64_t seed) {
  return std::make_unique<SyntheticEvaluationFeed>(shape, seed);
}

}  // namespace millrace::train
