#include "data/order.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace millrace::data {
namespace {

std::vector<uint64_t> order_of(uint64_t count, uint64_t seed, uint64_t epoch) {
  const ShuffledOrder order(count, seed, epoch);
  std::vector<uint64_t> records;
  for (uint64_t i = 0; i < count; ++i) records.push_back(order.at(i));
  return records;
}

TEST(ShuffledOrder, VisitsEveryRecordOnce) {
  for (const uint64_t count : {1ull, 2ull, 3ull, 4ull, 5ull, 16ull, 17ull, 1000ull, 65537ull}) {
    std::vector<int> seen(count);
    for (const uint64_t record : order_of(count, 3, 1)) ++seen.at(record);
    EXPECT_EQ(seen, std::vector<int>(count, 1)) << count;
  }
}

// Chances as torch's WeightedRandomSampler has them with a weight of 1 / records of the class.
TEST(BalancedOrder, DrawsClassesAlike) {
  const BalancedOrder order({{0, 1, 2, 3, 4, 5, 6, 7}, {}, {8}, {9, 10}});
  constexpr int kDraws = 60000;
  std::vector<double> hits(11);
  for (uint64_t i = 0; i < kDraws; ++i) hits.at(order.at(i, 5, 2)) += 1.0 / kDraws;
  const std::vector<double> records = {8, 8, 8, 8, 8, 8, 8, 8, 1, 2, 2};  // of its class
  for (size_t i = 0; i < hits.size(); ++i) {
    const double chance = 1 / (3 * records[i]);
    EXPECT_NEAR(hits[i], chance, 5 * std::sqrt(chance / kDraws)) << i;
  }
}

TEST(BalancedOrder, DependsOnSeedEpochAndPositionAlone) {
  const BalancedOrder order({{0, 1, 2, 3, 4}, {5, 6, 7}});
  const auto draws = [&](uint64_t seed, uint64_t epoch) {
    std::vector<uint64_t> records;
    for (uint64_t i = 0; i < 40; ++i) records.push_back(order.at(i, seed, epoch));
    return records;
  };
  EXPECT_EQ(draws(1, 2), draws(1, 2));
  EXPECT_NE(draws(1, 2), draws(1, 3));
  EXPECT_NE(draws(1, 2), draws(2, 2));
}

TEST(ShuffledOrder, DependsOnSeedAndEpoch) {
  EXPECT_EQ(order_of(1000, 3, 1), order_of(1000, 3, 1));
  EXPECT_NE(order_of(1000, 3, 1), order_of(1000, 3, 2));
  EXPECT_NE(order_of(1000, 3, 1), order_of(1000, 4, 1));
}

TEST(ShuffledOrder, LooksUniform) {
  const uint64_t count = 10;
  const int epochs = 20000;
  std::vector<std::vector<int>> hits(count, std::vector<int>(count));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto order = order_of(count, 11, static_cast<uint64_t>(epoch));
    for (uint64_t i = 0; i < count; ++i) ++hits[i][order[i]];
  }
  const double expected = static_cast<double>(epochs) / static_cast<double>(count);
  double chi_squared = 0;
  for (const auto& row : hits) {
    for (const int hit : row) chi_squared += (hit - expected) * (hit - expected) / expected;
  }
  EXPECT_LT(chi_squared, 81 + 5 * std::sqrt(2 * 81.0));
}

TEST(ShuffledOrder, NeighboursAreNotRelated) {
  const auto order = order_of(100000, 5, 0);
  double product = 0;
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    product += (static_cast<double>(order[i]) / 1e5 - 0.5) *
               (static_cast<double>(order[i + 1]) / 1e5 - 0.5);
  }
  EXPECT_NEAR(product / 1e5 * 12, 0, 0.02);
}

}  // namespace
}  // namespace millrace::data
