#include "data/mixing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/loader.h"
#include "images.h"

namespace millrace::data {
namespace {

// Moments of Beta(alpha, alpha): mean 1/2, variance 1 / (4 (2 alpha + 1)).
TEST(Mixing, SharesAreBetaDistributed) {
  constexpr int kDraws = 40000;
  for (const double alpha : {0.2, 1.0, 3.0}) {
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < kDraws; ++i) {
      const double share = draw_beta(alpha, Random(4, i), 8);
      ASSERT_GE(share, 0);
      ASSERT_LE(share, 1);
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    EXPECT_NEAR(squares / kDraws, variance, 0.03 * variance) << alpha;
  }
}

// Beta(1, 1) is uniform.
TEST(Mixing, SharesOfAlphaOneAreUniform) {
  constexpr int kDraws = 20000;
  int below[4] = {};
  for (uint64_t i = 0; i < kDraws; ++i) {
    const double share = draw_beta(1, Random(9, i), 8);
    for (int quarter = 0; quarter < 4; ++quarter) below[quarter] += share < 0.25 * (quarter + 1);
  }
  for (int quarter = 0; quarter < 4; ++quarter) {
    EXPECT_NEAR(below[quarter], 0.25 * (quarter + 1) * kDraws, 5 * std::sqrt(0.25 * kDraws));
  }
}

// The share is what is left of the area, also where the rectangle is cut off at an edge.
TEST(Mixing, RectanglesLeaveTheirShare) {
  int cut_off = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    const Mix mix = draw_mix({.cutmix = 1}, Random(2, i), 20, 30);
    ASSERT_TRUE(mix.cut);
    ASSERT_TRUE(mix.left >= 0 && mix.top >= 0 && mix.right <= 30 && mix.bottom <= 20);
    const double area = (mix.right - mix.left) * (mix.bottom - mix.top);
    ASSERT_NEAR(mix.share, 1 - area / 600, 1e-12);
    cut_off += mix.left == 0 || mix.top == 0 || mix.right == 30 || mix.bottom == 20 ? 1 : 0;
  }
  EXPECT_GT(cut_off, 50);
  EXPECT_LT(cut_off, 450);
}

class MixedSource : public RecordSource {
 public:
  uint64_t count() const override { return 24; }
  Sample read(uint64_t index) const override {
    Sample sample = sample_of(smooth_image(6, 6, 1, static_cast<double>(7 * index)), 0);
    sample.label = static_cast<int64_t>(index);
    return sample;
  }
  RecordPlace place(uint64_t index) const override { return {"mixed", index, index}; }
};

std::vector<Batch> batches_with(const MixSettings& mix, const std::vector<RowRange>& rows = {}) {
  LoaderOptions options;
  options.transform = small_training(6, 1);
  options.batch = 6;
  options.seed = 5;
  options.epochs = 2;
  options.mix = mix;
  options.rows = rows;
  Loader loader(std::make_shared<MixedSource>(), options);
  std::vector<Batch> batches;
  Batch batch;
  while (loader.next(batch)) batches.push_back(batch);
  return batches;
}

constexpr size_t kPixels = 36;

TEST(Mixing, EachRowIsMixedWithTheOneBeforeIt) {
  const auto plain = batches_with({});
  const auto mixed = batches_with({.mixup = 0.4});
  ASSERT_EQ(plain.size(), mixed.size());
  for (size_t b = 0; b < plain.size(); ++b) {
    ASSERT_EQ(mixed[b].mixing.size(), 12u);
    const double share = static_cast<double>(mixed[b].mixing[1]) / kWholeShare;
    for (size_t row = 0; row < 6; ++row) {
      const size_t other = (row + 5) % 6;
      EXPECT_EQ(mixed[b].labels[row], plain[b].labels[row]);
      EXPECT_EQ(mixed[b].mixing[2 * row], plain[b].labels[other]);
      for (size_t i = 0; i < kPixels; ++i) {
        const double expected = share * plain[b].images[row * kPixels + i] +
                                (1 - share) * plain[b].images[other * kPixels + i];
        ASSERT_NEAR(mixed[b].images[row * kPixels + i], expected, 1e-5) << row << " " << i;
      }
    }
  }
  EXPECT_NE(mixed[0].mixing[1], mixed[1].mixing[1]);
}

TEST(Mixing, ARectangleComesFromTheRowBefore) {
  const auto plain = batches_with({});
  const auto mixed = batches_with({.cutmix = 1});
  double taken = 0;
  for (size_t b = 0; b < plain.size(); ++b) {
    const double share = static_cast<double>(mixed[b].mixing[1]) / kWholeShare;
    for (size_t row = 0; row < 6; ++row) {
      const size_t other = (row + 5) % 6;
      double own = 0;
      for (size_t i = 0; i < kPixels; ++i) {
        const float value = mixed[b].images[row * kPixels + i];
        const float mine = plain[b].images[row * kPixels + i];
        const float theirs = plain[b].images[other * kPixels + i];
        ASSERT_TRUE(value == mine || value == theirs);
        own += value == mine && mine != theirs ? 1 : 0;
        taken += value != mine ? 1 : 0;
      }
      EXPECT_LE(own, share * kPixels + 1e-3);
    }
  }
  EXPECT_GT(taken, 0);
}

TEST(Mixing, PartsOfABatchHaveTheSameBits) {
  for (const MixSettings& settings : {MixSettings{.mixup = 0.4}, {.cutmix = 1}, {0.3, 1}}) {
    const auto whole = batches_with(settings);
    const auto part = batches_with(settings, {{0, 1}, {3, 5}});
    ASSERT_EQ(whole.size(), part.size());
    for (size_t b = 0; b < whole.size(); ++b) {
      ASSERT_EQ(part[b].labels.size(), 3u);
      ASSERT_EQ(part[b].images.size(), 3 * kPixels);
      size_t place = 0;
      for (const size_t row : {0u, 3u, 4u}) {
        EXPECT_EQ(part[b].labels[place], whole[b].labels[row]);
        EXPECT_EQ(part[b].mixing[2 * place], whole[b].mixing[2 * row]);
        EXPECT_EQ(part[b].mixing[2 * place + 1], whole[b].mixing[2 * row + 1]);
        for (size_t i = 0; i < kPixels; ++i) {
          ASSERT_EQ(part[b].images[place * kPixels + i], whole[b].images[row * kPixels + i]);
        }
        ++place;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::data
