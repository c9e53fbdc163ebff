#include "train/feed/feed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace millrace {
namespace {

constexpr BatchShape kShape = {.batch = 16, .channels = 3, .height = 32, .width = 32, .classes = 5};

TEST(SyntheticFeed, IsStandardNormalWithUniformLabels) {
  const auto feed = make_synthetic_feed(kShape, 1);
  const FeedBatch batch = feed->next().value();
  ASSERT_EQ(batch.images.size(), 16u * 3 * 32 * 32);
  ASSERT_EQ(batch.labels.size(), 16u);
  double sum = 0, squares = 0;
  for (const float value : batch.images) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto count = static_cast<double>(batch.images.size());
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.03);
  const std::set<int32_t> labels(batch.labels.begin(), batch.labels.end());
  EXPECT_GE(*labels.begin(), 0);
  EXPECT_LT(*labels.rbegin(), 5);
  EXPECT_GT(labels.size(), 2u);
}

TEST(SyntheticFeed, IsAFunctionOfTheSeed) {
  const auto copy_of = [](uint64_t seed) {
    const FeedBatch batch = make_synthetic_feed(kShape, seed)->next().value();
    return batch.images.size();
  };
  EXPECT_EQ(copy_of(1), copy_of(2));
  const auto first = make_synthetic_feed(kShape, 1), again = make_synthetic_feed(kShape, 1);
  const auto other = make_synthetic_feed(kShape, 2);
  const auto values = [](Feed& feed) {
    const FeedBatch batch = feed.next().value();
    return std::vector<float>(batch.images.begin(), batch.images.end());
  };
  const std::vector<float> images = values(*first);
  EXPECT_EQ(images, values(*again));
  EXPECT_NE(images, values(*other));
  EXPECT_EQ(images, values(*first));
  first->release();
  EXPECT_EQ(images, values(*first));
}

TEST(SyntheticFeed, CountsItsPosition) {
  const auto feed = make_synthetic_feed(kShape, 1, {0, 64});
  EXPECT_EQ(feed->next()->position, (FeedPosition{0, 64}));
  EXPECT_EQ(feed->position(), (FeedPosition{0, 80}));
  EXPECT_TRUE(feed->constant());
}

TEST(SyntheticFeed, EvaluationEnds) {
  const auto feed = make_synthetic_evaluation_feed(kShape, 1);
  EXPECT_TRUE(feed->next().has_value());
  EXPECT_FALSE(feed->next().has_value());
}

}  // namespace
}  // namespace millrace
