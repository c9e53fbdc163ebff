#include "planner/search/cut_search.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "made_up.h"
#include "planner/search/cuts.h"

namespace millrace::planner {
namespace {

// A whole number below `limit`.
double draw(std::mt19937& random, unsigned limit) { return static_cast<double>(random() % limit); }

struct Drawn {
  simulate::Cluster cluster;
  CostConstants constants = made_up::constants();
  NetworkWork network;
  PlannedJob job;

  explicit Drawn(std::mt19937& random) {
    cluster = made_up::cluster(4, 2, 1e9, 1e8 * (1 + draw(random, 20)));
    for (int i = 0; i < 12; ++i) {
      network.layers.push_back(made_up::layer(
          0.001 * (1 + draw(random, 20)), 1e5 * draw(random, 50), 1e5 * (1 + draw(random, 90))));
    }
    job.stages = {{{0, 1}}, {{2}}, {{4}}};
    if (draw(random, 3) == 0) job.stages[2].devices = {2};  // two stages on one device
    job.batch = 4;
    job.micro_batches = 1 << static_cast<int>(draw(random, 3));
    if (draw(random, 2) == 0) job.schedule = parallel::ScheduleKind::gpipe;
  }

  CostContext context() const { return {network, cluster, constants, constants.software[0]}; }

  double rate(const std::vector<int>& ends) const {
    PlannedJob cut = job;
    set_cuts(cut, ends);
    return predict(CostContext{network, cluster, constants, constants.software[0]}, cut)
        .samples_per_second;
  }
};

std::vector<int> ends_of(const PlannedJob& job) {
  std::vector<int> ends;
  for (const PlannedStage& stage : job.stages) ends.push_back(stage.end);
  return ends;
}

TEST(CutSearchTest, IsNearTheBestOfAllCutsInTheSimulator) {
  std::mt19937 random(11);
  int found = 0, by_cost = 0;
  constexpr int kRounds = 40;
  for (int round = 0; round < kRounds; ++round) {
    const Drawn drawn(random);
    double best = 0;
    for (int a = 1; a < 11; ++a) {
      for (int b = a + 1; b < 12; ++b) best = std::max(best, drawn.rate({a, b, 12}));
    }
    const std::vector<int> even = cut_by_cost(drawn.context(), drawn.job);
    const double rate =
        drawn.rate(ends_of(cut_by_simulation(drawn.context(), drawn.job, {1e18, 1e6})));
    EXPECT_GE(rate, drawn.rate(even)) << round;
    EXPECT_GE(rate, best * 0.97) << round;
    found += rate >= best * (1 - 1e-9) ? 1 : 0;
    by_cost += drawn.rate(even) >= best * (1 - 1e-9) ? 1 : 0;
  }
  EXPECT_GE(found, kRounds * 8 / 10);
  EXPECT_LE(by_cost, kRounds / 2);  // or the draws would show nothing
}

TEST(CutSearchTest, WhatFitsComesFirst) {
  std::mt19937 random(12);
  Drawn drawn(random);
  drawn.job.stages = {{{0}}, {{2}}};
  drawn.job.batch = 1;
  drawn.network = made_up::network({0.1, 0.1, 0.1, 0.1});
  drawn.network.layers[1].parameters = drawn.network.layers[0].parameters = 1e6;
  const PlannedJob even = cut_by_simulation(drawn.context(), drawn.job, {1e18, 1e6});
  EXPECT_EQ(ends_of(even), (std::vector{2, 4}));
  // Either of the first two layers takes 12 MB with its gradient and momentum.
  const PlannedJob fits = cut_by_simulation(drawn.context(), drawn.job, {18e6, 1e6});
  EXPECT_EQ(ends_of(fits), (std::vector{1, 4}));
  // Nothing fits: the least memory.
  const PlannedJob none = cut_by_simulation(drawn.context(), drawn.job, {1e6, 1e6});
  EXPECT_EQ(ends_of(none), (std::vector{1, 4}));
}

TEST(CutSearchTest, MoreStagesThanLayersAreRefused) {
  std::mt19937 random(13);
  Drawn drawn(random);
  drawn.network.layers.resize(2);
  EXPECT_THROW(cut_by_simulation(drawn.context(), drawn.job, {1e18, 1e6}), InputError);
}

}  // namespace
}  // namespace millrace::planner
