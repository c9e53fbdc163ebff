#include "planner/pipedream.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "evaluation.h"
#include "reference.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;

std::vector<int> replicas(const PipedreamPlan& plan) {
  std::vector<int> result;
  for (const PipelineStage& stage : plan.stages) result.push_back(stage.replicas);
  return result;
}

void expect_relative(double value, double expected) {
  EXPECT_NEAR(value, expected, 1e-9 * std::abs(expected));
}

void expect_plan_costs_what_it_says(const Profile& profile, const PipedreamOptions& options,
                                    const PipedreamPlan& plan) {
  ASSERT_TRUE(plan.pipeline_seconds);
  const PartitionCost cost = evaluate_partition(profile, options, plan.stages);
  expect_relative(cost.seconds, *plan.pipeline_seconds);
  EXPECT_TRUE(cost.fits);
}

// Returns whether there is a plan.
bool expect_exhaustive(const Profile& profile, const PipedreamOptions& options) {
  const PipedreamPlan plan = optimize_pipedream(profile, options);
  const double expected = reference::exhaustive_seconds(reference::find_cuts(profile), options);
  EXPECT_EQ(plan.pipeline_seconds.has_value(), std::isfinite(expected));
  if (!plan.pipeline_seconds || !std::isfinite(expected)) {
    EXPECT_TRUE(plan.stages.empty());
    return false;
  }
  expect_relative(*plan.pipeline_seconds, expected);
  expect_plan_costs_what_it_says(profile, options, plan);
  return true;
}

std::vector<PipedreamOptions> variations(std::vector<Level> levels) {
  std::vector<PipedreamOptions> result;
  for (const auto& ratio : {std::optional<double>(), std::optional<double>(2)}) {
    for (const auto& memory : {std::optional<double>(), std::optional<double>(4e8)}) {
      for (const int bits : {0, 1, 2, 3}) {
        result.push_back({levels, ratio, memory, (bits & 1) != 0, (bits & 2) != 0});
      }
    }
  }
  return result;
}

TEST(PipedreamTest, PublishedOptima) {
  const PipedreamOptions options{.levels = {{4, 1e9}}, .activation_ratio = 1, .memory_bytes = {}};
  const PipedreamPlan alexnet = optimize_pipedream(reference::published("alexnet"), options);
  expect_relative(alexnet.pipeline_seconds.value(), 0.03421714133333333);
  expect_relative(alexnet.data_parallel_seconds, 0.20463277);
  EXPECT_EQ(alexnet.states, 22);
  EXPECT_THAT(replicas(alexnet), ElementsAre(3, 1));
  const PipedreamPlan vgg = optimize_pipedream(reference::published("vgg16"), options);
  expect_relative(vgg.pipeline_seconds.value(), 0.205520896);
  expect_relative(vgg.data_parallel_seconds, 0.583206382);
  EXPECT_EQ(vgg.states, 40);
  EXPECT_THAT(replicas(vgg), ElementsAre(3, 1));
}

// The table comes from make_optima.py.
TEST(PipedreamTest, PublishedProfilesOnManyMachines) {
  const Json rows =
      Json::parse(read_text(std::string(MILLRACE_TEST_DATA) + "/profiles/optima.json"));
  const auto maybe = [](const Json& value) {
    return value.is_null() ? std::optional<double>() : std::optional<double>(value.get<double>());
  };
  int feasible = 0;
  int impossible = 0;
  for (const Json& row : rows) {
    SCOPED_TRACE(row.dump());
    PipedreamOptions options{.levels = {},
                             .activation_ratio = maybe(row["ratio"]),
                             .memory_bytes = maybe(row["memory"]),
                             .straight = row["straight"].get<bool>(),
                             .fewer = row["fewer"].get<bool>()};
    for (const Json& level : row["levels"]) {
      options.levels.push_back({level[0].get<int>(), level[1].get<double>()});
    }
    const Profile profile = reference::published(row["profile"].get<std::string>());
    const PipedreamPlan plan = optimize_pipedream(profile, options);
    expect_relative(plan.data_parallel_seconds, row["data_parallel"].get<double>());
    EXPECT_EQ(plan.states, row["states"].get<int>());
    ASSERT_EQ(plan.pipeline_seconds.has_value(), !row["pipeline"].is_null());
    if (!plan.pipeline_seconds) {
      ++impossible;
      continue;
    }
    ++feasible;
    expect_relative(*plan.pipeline_seconds, row["pipeline"].get<double>());
    expect_plan_costs_what_it_says(profile, options, plan);
  }
  EXPECT_GT(feasible, 300);
  EXPECT_GT(impossible, 0);
}

TEST(PipedreamTest, ChainsAndBranchesOnOneLevel) {
  const Profile chain = reference::make_profile(4, {{0, 1}, {1, 2}, {2, 3}}, 5);
  const Profile diamond = reference::make_profile(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}}, 6);
  const Profile two_sources = reference::make_profile(4, {{0, 2}, {1, 2}, {2, 3}}, 7);
  for (const Profile& profile : {chain, diamond, two_sources}) {
    for (int workers = 1; workers <= 16; ++workers) {
      for (const PipedreamOptions& options : variations({{workers, 2e9}})) {
        SCOPED_TRACE(workers);
        expect_exhaustive(profile, options);
      }
    }
  }
}

TEST(PipedreamTest, RandomGraphsOnOneLevel) {
  int planned = 0;
  int impossible = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Profile profile = reference::random_profile(3 + static_cast<int>(seed % 4),
                                                      0.2 + 0.15 * (seed % 4), 7 * seed);
    for (const PipedreamOptions& options :
         variations({{2 + static_cast<int>(seed % 4), 1e9 * (1 + seed % 3)}})) {
      SCOPED_TRACE(seed);
      ++(expect_exhaustive(profile, options) ? planned : impossible);
    }
  }
  EXPECT_GT(planned, 500);
  EXPECT_GT(impossible, 20);
}

TEST(PipedreamTest, RandomGraphsOnTwoLevels) {
  const std::vector<std::pair<int, int>> machines = {{1, 2}, {2, 1}, {2, 2}, {3, 2},
                                                     {2, 3}, {4, 2}, {2, 4}, {4, 4}};
  for (unsigned seed = 0; seed < 32; ++seed) {
    const auto [inner, outer] = machines[seed % machines.size()];
    const Profile profile =
        reference::random_profile(inner + outer > 6 ? 4 : 5, 0.2 + 0.15 * (seed % 4), 11 * seed);
    for (const PipedreamOptions& options : variations({{inner, 8e9}, {outer, 1e9}})) {
      SCOPED_TRACE(seed);
      expect_exhaustive(profile, options);
    }
  }
}

TEST(PipedreamTest, ThreeLevels) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    const Profile profile = reference::random_profile(4, 0.4, 100 + seed);
    for (const PipedreamOptions& options : variations({{2, 8e9}, {2, 4e9}, {2, 1e9}})) {
      SCOPED_TRACE(seed);
      expect_exhaustive(profile, options);
    }
  }
}

TEST(PipedreamTest, OneOperatorOnOneWorker) {
  const Profile profile = reference::make_profile(1, {}, 9);
  const PipedreamPlan plan = optimize_pipedream(profile, {.levels = {{1, 1e9}}});
  ASSERT_TRUE(plan.pipeline_seconds);
  EXPECT_DOUBLE_EQ(*plan.pipeline_seconds, plan.data_parallel_seconds);
  EXPECT_THAT(replicas(plan), ElementsAre(1));
}

TEST(PipedreamTest, OptionsOutOfRangeAreRefused) {
  const Profile profile = reference::make_profile(2, {{0, 1}}, 9);
  const std::vector<Level> good = {{2, 1e9}};
  for (const PipedreamOptions& options :
       {PipedreamOptions{}, PipedreamOptions{.levels = {{0, 1e9}}},
        PipedreamOptions{.levels = {{-1, 1e9}}}, PipedreamOptions{.levels = {{1 << 30, 1e9}}},
        PipedreamOptions{.levels = {{2, 0}}}, PipedreamOptions{.levels = {{2, -1}}},
        PipedreamOptions{.levels = {{2, std::nan("")}}},
        PipedreamOptions{.levels = {{2, INFINITY}}},
        PipedreamOptions{.levels = good, .activation_ratio = 0.0},
        PipedreamOptions{.levels = good, .activation_ratio = std::nan("")},
        PipedreamOptions{.levels = good, .memory_bytes = 0.0}}) {
    EXPECT_THROW(optimize_pipedream(profile, options), InputError);
  }
}

}  // namespace
}  // namespace millrace::planner
