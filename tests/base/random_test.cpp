#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace {
namespace {

// Known answers of Philox 4x32-10 from the Random123 distribution (kat_vectors).
TEST(Random, MatchesKnownAnswers) {
  const auto zeros = Random(0, 0).words(0);
  EXPECT_EQ(zeros, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto ones = Random(~0ull, ~0ull).words(~0ull);
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, UniformAndNormalHaveTheRightMoments) {
  const Random random(7, 3);
  const int count = 100000;
  double uniform_sum = 0;
  double normal_sum = 0;
  double normal_squares = 0;
  for (int i = 0; i < count; ++i) {
    const float uniform = random.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(uniform, 0.0f);
    ASSERT_LT(uniform, 1.0f);
    uniform_sum += uniform;
    const float normal = random.normal(static_cast<uint64_t>(i));
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(uniform_sum / count, 0.5, 0.005);
  EXPECT_NEAR(normal_sum / count, 0.0, 0.02);
  EXPECT_NEAR(normal_squares / count, 1.0, 0.02);
}

// Against the definition by the standard library, whose rounding may differ in the last place.
TEST(Random, NormalsAreBoxAndMullersWhereverTheyBegin) {
  const Random random(11, uint64_t{1} << 40);
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{127}, (uint64_t{1} << 33) - 3}) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{127}, size_t{128}, size_t{1000}}) {
      std::vector<float> values(count, 99.0f);
      random.normals(first, values);
      for (size_t i = 0; i < count; ++i) {
        const uint64_t index = first + i;
        const auto words = random.words(index / 2);
        const size_t pair = index % 2 * 2;
        const double radius = std::sqrt(-2 * std::log((words[pair] + 0.5) / 4294967296.0));
        const double expected = radius * std::cos(2 * M_PI * (words[pair + 1] / 4294967296.0));
        ASSERT_NEAR(values[i], expected, 1e-7 * std::max(1.0, std::abs(expected))) << index;
        ASSERT_EQ(values[i], random.normal(index)) << index;
      }
    }
  }
}

TEST(Random, BelowStaysBelowAndReachesEveryValue) {
  const Random random(1, 2);
  std::array<int, 7> seen = {};
  for (uint64_t i = 0; i < 7000; ++i) ++seen.at(random.below(i, 7));
  for (int count : seen) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace millrace
