#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/random.h"
#include "head_harness.h"

namespace millrace::testing {
namespace {

Values labels_of(const HeadCase& entry, uint64_t seed) { return random_head(entry, seed).labels; }

TEST(HeadSampling, PositivesAreThereAndNothingTwice) {
  HeadCase entry = {.batch = 64, .dimension = 2, .classes = 1003, .shards = 3, .sample_rate = 0.3};
  const Values labels = labels_of(entry, 1);
  for (int64_t step = 0; step < 20; ++step) {
    entry.step.step = step;
    std::set<int32_t> all;
    for (int shard = 0; shard < entry.shards; ++shard) {
      const auto sample = sample_of(entry, labels, shard);
      const int64_t local = entry.begin(shard + 1) - entry.begin(shard);
      EXPECT_EQ(static_cast<int64_t>(sample.size()), local * 3 / 10);
      const size_t before = all.size();
      for (const int32_t j : sample) {
        EXPECT_GE(j, entry.begin(shard));
        EXPECT_LT(j, entry.begin(shard + 1));
        all.insert(j);
      }
      EXPECT_EQ(all.size(), before + sample.size());
    }
    for (const double label : labels) EXPECT_TRUE(all.contains(static_cast<int32_t>(label)));
  }
}

TEST(HeadSampling, ManyPositivesAreAll) {
  HeadCase entry = {.batch = 64, .dimension = 2, .classes = 500, .sample_rate = 0.02};
  const Values labels = labels_of(entry, 2);
  const auto sample = sample_of(entry, labels, 0);
  const std::set<double> distinct(labels.begin(), labels.end());
  EXPECT_GT(distinct.size(), 10u);
  EXPECT_EQ(std::set<double>(sample.begin(), sample.end()), distinct);
  EXPECT_EQ(sample.size(), distinct.size());
}

TEST(HeadSampling, DependsOnSeedStepAndRangeAlone) {
  HeadCase entry = {.batch = 8, .dimension = 2, .classes = 10000, .shards = 2, .sample_rate = 0.1};
  const Values labels = labels_of(entry, 3);
  const auto sample = sample_of(entry, labels, 1);
  HeadCase other = entry;
  other.threads = 3;
  EXPECT_EQ(sample_of(other, labels, 1), sample);
  other = entry;
  other.step.seed += 1;
  EXPECT_NE(sample_of(other, labels, 1), sample);
  other = entry;
  other.step.step += 1;
  EXPECT_NE(sample_of(other, labels, 1), sample);
  const auto first = sample_of(entry, labels, 0);
  std::vector<int32_t> shifted;
  for (const int32_t j : first) shifted.push_back(j + 5000);
  EXPECT_NE(shifted, sample);
}

// Each class but the positives is drawn with the same probability. The counts of `classes` cells
// over `steps` steps are hypergeometric; their statistic is near its degrees of freedom.
TEST(HeadSampling, NegativesAreUniform) {
  for (const int64_t classes : {37, 300, 1025}) {
    HeadCase entry = {.batch = 6, .dimension = 2, .classes = classes, .sample_rate = 0.25};
    const Values labels = labels_of(entry, 4);
    const std::set<double> positives(labels.begin(), labels.end());
    const int64_t steps = 4000;
    std::vector<double> counts(static_cast<size_t>(classes));
    double drawn = 0;
    for (entry.step.step = 0; entry.step.step < steps; ++entry.step.step) {
      for (const int32_t j : sample_of(entry, labels, 0)) {
        if (positives.contains(j)) continue;
        counts[static_cast<size_t>(j)] += 1;
        drawn += 1;
      }
    }
    const auto cells = static_cast<double>(classes) - static_cast<double>(positives.size());
    const double probability = drawn / static_cast<double>(steps) / cells;
    const double expected = probability * static_cast<double>(steps);
    double statistic = 0;
    for (int64_t j = 0; j < classes; ++j) {
      if (positives.contains(static_cast<double>(j))) continue;
      const double off = counts[static_cast<size_t>(j)] - expected;
      statistic += off * off / (expected * (1 - probability)) * (cells - 1) / cells;
    }
    const double freedom = cells - 1;
    EXPECT_LT(std::abs(statistic - freedom), 4 * std::sqrt(2 * freedom)) << classes;
  }
}

// Pairs too: two neighbours come together as often as independence of the draws has it.
TEST(HeadSampling, NeighboursAreDrawnIndependently) {
  HeadCase entry = {.batch = 1, .dimension = 2, .classes = 401, .sample_rate = 0.2};
  const Values labels = {0};
  double together = 0;
  const int64_t steps = 4000;
  for (entry.step.step = 0; entry.step.step < steps; ++entry.step.step) {
    auto sample = sample_of(entry, labels, 0);
    std::sort(sample.begin() + 1, sample.end());
    for (size_t i = 2; i < sample.size(); ++i) together += sample[i] == sample[i - 1] + 1 ? 1 : 0;
  }
  // 79 of 400 drawn; 399 pairs of neighbours.
  const double expected = 399.0 * (79.0 / 400) * (78.0 / 399) * static_cast<double>(steps);
  EXPECT_NEAR(together / expected, 1, 0.01);
}

TEST(HeadSampling, TimeFollowsTheSampleAndNotTheClasses) {
  const auto seconds = [](int64_t classes, double rate) {
    HeadCase entry = {.batch = 8, .dimension = 2, .classes = classes, .sample_rate = rate};
    const Values labels = {0, 1, 2, 3, 4, 5, 6, 7};
    double best = 1e9;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      sample_of(entry, labels, 0);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      best = std::min(best, taken.count());
    }
    return best;
  };
  EXPECT_LT(seconds(100'000'000, 1e-4), 10 * seconds(100'000, 0.1));
}

}  // namespace
}  // namespace millrace::testing
