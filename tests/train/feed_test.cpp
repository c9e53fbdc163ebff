#include "train/feed/feed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "memory_feed.h"

namespace millrace::train {
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

// Every batch of `part` must be the rows of the batch of `whole`, for `batches` batches.
void expect_rows(Feed& whole, Feed& part, const std::vector<RowRange>& rows, int batches) {
  for (int i = 0; i < batches; ++i) {
    const std::optional<FeedBatch> expected = whole.next(), given = part.next();
    ASSERT_EQ(expected.has_value(), given.has_value());
    if (!expected) return;
    const size_t size = expected->images.size() / expected->labels.size();
    std::vector<float> images;
    std::vector<int32_t> labels;
    for (const RowRange& range : rows) {
      for (auto row = static_cast<size_t>(range.begin); row < static_cast<size_t>(range.end);
           ++row) {
        labels.push_back(expected->labels[row]);
        const auto image = expected->images.subspan(row * size, size);
        images.insert(images.end(), image.begin(), image.end());
      }
    }
    EXPECT_EQ(std::vector<int32_t>(given->labels.begin(), given->labels.end()), labels);
    EXPECT_EQ(std::vector<float>(given->images.begin(), given->images.end()), images);
    EXPECT_EQ(given->position, expected->position);
    EXPECT_EQ(part.position(), whole.position());
  }
}

TEST(RowsOfFeeds, AreThoseOfTheWholeBatchBitForBit) {
  const BatchShape whole = {.batch = 7, .channels = 2, .height = 3, .width = 3, .classes = 5};
  const auto data = std::make_shared<MemoryData>();
  for (int i = 0; i < 38; ++i) {
    data->labels.push_back(i % 5);
    for (int pixel = 0; pixel < 18; ++pixel)
      data->images.push_back(static_cast<float>(100 * i + pixel));
  }
  for (const std::vector<RowRange>& rows : std::vector<std::vector<RowRange>>{
           {{0, 3}}, {{3, 5}}, {{5, 7}}, {{6, 7}, {1, 2}}, {{2, 2}}}) {
    BatchShape part = whole;
    part.rows = rows;
    expect_rows(*make_synthetic_feed(whole, 3), *make_synthetic_feed(part, 3), rows, 2);
    expect_rows(*make_synthetic_evaluation_feed(whole, 3), *make_synthetic_evaluation_feed(part, 3),
                rows, 2);
    expect_rows(*make_memory_feed(data, whole, 3), *make_memory_feed(data, part, 3), rows, 12);
    expect_rows(*make_memory_evaluation_feed(data, whole), *make_memory_evaluation_feed(data, part),
                rows, 12);
    expect_rows(*make_memory_feed(data, whole, 3),
                *make_row_feed(make_memory_feed(data, whole, 3), part), rows, 12);
  }
}

TEST(RowsOfFeeds, OutsideTheBatchAreRefused) {
  BatchShape shape = kShape;
  shape.rows = {{10, 17}};
  EXPECT_THROW(make_synthetic_feed(shape, 1), InputError);
  EXPECT_THROW(make_row_feed(make_synthetic_feed(kShape, 1), shape), InputError);
}

TEST(RowsOfFeeds, AFeedOfAnotherSizeIsRefused) {
  BatchShape shape = kShape;
  shape.batch = 8;
  shape.rows = {{0, 4}};
  EXPECT_THROW(make_row_feed(make_synthetic_feed(kShape, 1), shape)->next(), InputError);
}

}  // namespace
}  // namespace millrace::train
