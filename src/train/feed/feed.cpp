#include "train/feed/feed.h"

#include "base/parallel.h"
#include "base/random.h"

namespace millrace {
namespace {

constexpr uint64_t kImageStream = 0x73796e7468696d67;
constexpr uint64_t kLabelStream = 0x73796e74686c6162;

class SyntheticFeed : public Feed {
 public:
  SyntheticFeed(const BatchShape& shape, uint64_t seed, FeedPosition start)
      : shape_(shape), seed_(seed), position_(start) {}

  std::optional<FeedBatch> next() override {
    if (labels_.empty()) generate();
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
    images_.resize(
        static_cast<size_t>(shape_.batch * shape_.channels * shape_.height * shape_.width));
    const Random pixels(seed_, kImageStream);
    parallel_for(static_cast<int64_t>(images_.size()), 4096, [&](int64_t i) {
      images_[static_cast<size_t>(i)] = pixels.normal(static_cast<uint64_t>(i));
    });
    labels_.resize(static_cast<size_t>(shape_.batch));
    const Random classes(seed_, kLabelStream);
    for (size_t i = 0; i < labels_.size(); ++i) {
      labels_[i] = static_cast<int32_t>(classes.below(i, static_cast<uint64_t>(shape_.classes)));
    }
  }

  BatchShape shape_;
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

}  // namespace millrace
