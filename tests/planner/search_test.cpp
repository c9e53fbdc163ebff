#include "planner/search/search.h"

#include <gmock/gmock.h>

#include <ctime>
#include <random>
#include <set>

#include "base/error.h"
#include "made_up.h"
#include "planner/cost/memory_needs.h"
#include "planner/search/candidates.h"
#include "planner/search/cuts.h"
#include "planner/search/stale_accuracy.h"

namespace millrace::planner {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// A whole number below `limit`.
double draw(std::mt19937& random, unsigned limit) { return static_cast<double>(random() % limit); }

// The slowest stage of a division, by the same formula.
double slowest(const StageTimes& times, const PlannedJob& job, const std::vector<int>& ends) {
  double result = 0;
  int begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    const int replicas = static_cast<int>(job.stages[i].devices.size());
    result = std::max(result, times.seconds(begin, ends[i], replicas, 1e10));
    begin = ends[i];
  }
  return result;
}

TEST(SearchTest, CutsAreAsGoodAsAllOfThem) {
  const simulate::Cluster cluster = made_up::cluster(1, 6);
  CostConstants constants = made_up::constants();
  constants.software[0].update_passes = 5;
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    NetworkWork network;
    for (int i = 0; i < 9; ++i) {
      network.layers.push_back(
          made_up::layer(0.01 * (1 + draw(random, 20)), 1e6 * (draw(random, 50))));
    }
    PlannedJob job;
    job.stages = {{{0, 1, 2}}, {{3, 4}}, {{5}}};
    job.round_robin = round % 2 == 1;
    job.schedule = parallel::ScheduleKind::one_f_one_b;
    job.batch = 4;
    const StageTimes times({network, cluster, constants, constants.software[0]}, job);
    double best = 1e300;
    for (int a = 1; a < 8; ++a) {
      for (int b = a + 1; b < 9; ++b) best = std::min(best, slowest(times, job, {a, b, 9}));
    }
    const std::vector<int> ends =
        cut_by_cost({network, cluster, constants, constants.software[0]}, job);
    EXPECT_NEAR(slowest(times, job, ends), best, 1e-12);
  }
}

TEST(SearchTest, SharesAddUpToTheDevices) {
  for (const int devices : {1, 2, 7, 16, 1024}) {
    const auto shares = device_shares(devices, 20);
    EXPECT_THAT(shares, Contains(std::vector<int>{devices}));
    for (const auto& share : shares) {
      EXPECT_EQ(std::accumulate(share.begin(), share.end(), 0), devices);
      EXPECT_LE(share.size(), 20u);
      for (const int part : share) EXPECT_GE(part, 1);
    }
    EXPECT_LT(shares.size(), 60u);
  }
  EXPECT_THAT(device_shares(8, 20), Contains(std::vector<int>{7, 1}));
}

struct Best {
  double seconds = 1e300;
  bool fits = false;
};

// Simulates everything that the search could have considered.
Best brute_force(const NetworkWork& network, const SearchRequest& request,
                 const simulate::Cluster& cluster, const CostConstants& constants) {
  Best best;
  const CostContext context{network, cluster, constants, constants.software[0]};
  for (const Candidate& candidate : candidates(context, request)) {
    const Prediction prediction =
        predict(CostContext{network, cluster, constants, constants.software[0]}, candidate.job);
    if (!prediction.fits) continue;
    best.fits = true;
    best.seconds = std::min(best.seconds, 1 / prediction.samples_per_second);
  }
  return best;
}

TEST(SearchTest, ChoosesWithinTwoPercentOfBruteForce) {
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    simulate::Cluster cluster =
        made_up::cluster(round % 2 + 1, 4, 1e9 * (1 + draw(random, 20)), 1e9);
    cluster.device.memory_bytes = 2e6 * (1 + draw(random, 60));
    NetworkWork network;
    for (int i = 0; i < 7; ++i) {
      network.layers.push_back(made_up::layer(
          0.001 * (1 + draw(random, 20)), 1e4 * (draw(random, 90)), 1e4 * (1 + draw(random, 9))));
      network.layers.back().saved = {0, 1e4 * (1 + draw(random, 9))};
    }
    CostConstants constants = made_up::constants();
    constants.software[0].overlap = 0.5;
    SearchRequest request;
    request.devices = cluster.devices();
    request.global_batch = 32;
    request.allow_stale = round % 3 == 0;
    const SearchOutcome outcome =
        search_plans({network, cluster, constants, constants.software[0]}, request);
    const Best best = brute_force(network, request, cluster, constants);
    ASSERT_EQ(best.fits, !outcome.plans.empty());
    if (best.fits) {
      EXPECT_LE(1 / outcome.plans.front().samples_per_second, best.seconds * 1.02) << round;
    } else {
      EXPECT_THAT(outcome.others.front().verdict, HasSubstr("does not fit"));
    }
  }
}

TEST(SearchTest, IsNeverWorseThanPipedreamsDivision) {
  const CostConstants constants = builtin_constants();
  const SoftwareConstants& software = constants.system("millrace", "--as");
  for (const char* model : {"alexnet", "vgg16", "resnet18"}) {
    const bool small = std::string_view(model) == "alexnet";
    for (const int devices : small ? std::vector{2, 3, 4, 7, 8, 12, 16} : std::vector{2, 4, 8}) {
      const simulate::Cluster cluster = find_cluster("titanv-8x2", "--cluster");
      const NetworkWork network = work_of(model, models::default_options(model));
      const CostContext context{network, cluster, constants, software};
      SearchRequest request;
      request.devices = devices;
      request.global_batch = 16.0 * devices;
      request.allow_stale = true;
      PlannedJob job;
      job.batch = 16;
      job.schedule = parallel::ScheduleKind::ssp;
      const std::vector<Division> divisions = pipedream_divisions(context, job, {devices});
      ASSERT_EQ(divisions.size(), devices == 16 ? 2u : 1u);
      job.stages = divisions.front();
      EXPECT_EQ(job.devices(), devices);
      EXPECT_EQ(job.stages.back().end, static_cast<int>(network.layers.size()));
      const Prediction theirs = predict(CostContext{network, cluster, constants, software}, job);
      const SearchOutcome ours = search_plans(context, request);
      ASSERT_FALSE(ours.plans.empty());
      EXPECT_GE(ours.plans.front().samples_per_second, theirs.samples_per_second * (1 - 1e-9))
          << model << " on " << devices;
      ASSERT_TRUE(ours.pipedream);
      EXPECT_GE(ours.plans.front().samples_per_second,
                ours.pipedream->samples_per_second * (1 - 1e-9));
    }
  }
}

TEST(SearchTest, ObeysRestrictions) {
  const simulate::Cluster cluster = made_up::cluster(1, 4);
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.01), 1e6);
  SearchRequest request;
  request.devices = 4;
  request.global_batch = 16;
  request.recompute = true;
  const SearchOutcome outcome =
      search_plans({network, cluster, constants, constants.software[0]}, request);
  for (const auto* list : {&outcome.plans, &outcome.others}) {
    for (const SearchResult& result : *list) {
      EXPECT_TRUE(parallel::is_synchronous(result.job.schedule));
      EXPECT_TRUE(result.job.recompute);
      EXPECT_DOUBLE_EQ(result.job.samples_per_step(), 16);
      EXPECT_FALSE(result.verdict.empty());
    }
  }
  const CostContext context = {network, cluster, constants, constants.software[0]};
  request.micro_batches = 4;
  const std::vector<Candidate> in_four = candidates(context, request);
  EXPECT_FALSE(in_four.empty());
  for (const Candidate& candidate : in_four) EXPECT_EQ(candidate.job.micro_batches, 4);
  request.micro_batches = {};
  request.parallelism = parallel::Parallelism::model;
  EXPECT_TRUE(candidates(context, request).empty());
  request.parallelism = {};
  request.devices = 5;
  EXPECT_THROW(search_plans(context, request), InputError);
}

// What is trained has whole samples on each device.
TEST(SearchTest, DevicesDivideTheGlobalBatch) {
  const simulate::Cluster cluster = made_up::cluster(1, 8);
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.01), 1e6);
  const CostContext context = {network, cluster, constants, constants.software[0]};
  SearchRequest request;
  request.devices = 8;
  request.global_batch = 100;
  EXPECT_THROW(search_plans(context, request), InputError);
  request.fewer = true;
  const SearchOutcome outcome = search_plans(context, request);
  ASSERT_FALSE(outcome.plans.empty());
  for (const SearchResult& result : outcome.plans) {
    EXPECT_EQ(100 % result.job.devices(), 0) << result.job.devices();
  }
}

// The kinds of schedules of pipelines among the candidates.
std::set<std::string_view> schedules_of(const std::vector<Candidate>& list) {
  std::set<std::string_view> names;
  for (const Candidate& candidate : list) {
    if (candidate.job.stages.size() > 1) names.insert(parallel::name_of(candidate.job.schedule));
  }
  return names;
}

TEST(SearchTest, StaleSchedulesAreTriedOnlyWhereTheyAreAllowed) {
  const simulate::Cluster cluster = made_up::cluster(1, 4);
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network(std::vector<double>(16, 0.01), 1e6);
  const CostContext context{network, cluster, constants, constants.software[0]};
  SearchRequest request;
  request.devices = 4;
  request.global_batch = 48;
  using Names = std::set<std::string_view>;
  EXPECT_EQ(schedules_of(candidates(context, request)),
            (Names{"1f1b-flush", "zero-bubble", "interleaved"}));
  const SearchOutcome exact = search_plans(context, request);
  for (const SearchResult& result : exact.plans) EXPECT_TRUE(result.job.is_exact());
  ASSERT_TRUE(exact.pipedream);
  request.allow_stale = true;
  EXPECT_EQ(schedules_of(candidates(context, request)),
            (Names{"1f1b-flush", "zero-bubble", "interleaved", "1f1b", "ssp", "2bw"}));
  request.schedule = parallel::ScheduleKind::interleaved;
  EXPECT_EQ(schedules_of(candidates(context, request)), (Names{"interleaved"}));
  request.schedule = parallel::ScheduleKind::ssp;
  EXPECT_FALSE(search_plans(context, request).plans.empty());
  request.allow_stale = false;
  try {
    search_plans(context, request);
    ADD_FAILURE() << "a stale schedule was not refused";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("allow_stale"));
  }
}

TEST(SearchTest, WhatStaleSchedulesCostIsSaid) {
  EXPECT_FALSE(stale_accuracy(parallel::ScheduleKind::gpipe, 4));
  EXPECT_FALSE(stale_accuracy(parallel::ScheduleKind::zero_bubble, 4));
  EXPECT_FALSE(stale_accuracy(parallel::ScheduleKind::one_f_one_b, 1));
  EXPECT_DOUBLE_EQ(stale_accuracy(parallel::ScheduleKind::one_f_one_b, 2)->measured, 85.4);
  EXPECT_DOUBLE_EQ(stale_accuracy(parallel::ScheduleKind::one_f_one_b, 3)->measured, 84.0);
  EXPECT_DOUBLE_EQ(stale_accuracy(parallel::ScheduleKind::one_f_one_b, 16)->measured, 84.0);
  EXPECT_DOUBLE_EQ(stale_accuracy(parallel::ScheduleKind::ssp, 2)->measured, 85.4);
  EXPECT_DOUBLE_EQ(stale_accuracy(parallel::ScheduleKind::two_bw, 2)->one_device, 86.5);
  EXPECT_THAT(stale_sentence(parallel::ScheduleKind::two_bw, 2), HasSubstr("80.0 % right where"));
}

TEST(SearchTest, SharedOptimizerStateTakesItsPartOfTheMemory) {
  simulate::Cluster cluster = made_up::cluster(1, 4);
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network(std::vector<double>(2, 0.01), 1e6);
  const CostContext context{network, cluster, constants, constants.software[0]};
  SearchRequest request;
  request.devices = 4;
  request.global_batch = 16;
  request.optimizer_states = 2;
  request.share_optimizer = false;
  const SearchOutcome apart = search_plans(context, request);
  request.share_optimizer.reset();
  const SearchOutcome any = search_plans(context, request);
  ASSERT_FALSE(apart.plans.empty());
  ASSERT_FALSE(any.plans.empty());
  EXPECT_GT(any.tried, apart.tried);
  PlannedJob job = apart.plans.front().job;
  job.stages = {{{0, 1, 2, 3}, 0, 2}};
  job.schedule = parallel::ScheduleKind::one_f_one_b_flush;
  job.micro_batches = 1;
  job.round_robin = false;
  const StageMemory all =
      memory_needs({network, cluster, constants, constants.software[0]}, job).stages[0];
  job.share_optimizer = true;
  const StageMemory part =
      memory_needs({network, cluster, constants, constants.software[0]}, job).stages[0];
  EXPECT_DOUBLE_EQ(all.optimizer, 4 * part.optimizer);
  EXPECT_DOUBLE_EQ(all.total() - part.total(), all.optimizer - part.optimizer);
  request.share_optimizer = true;
  for (const SearchResult& result : search_plans(context, request).plans) {
    const bool alone = result.job.stages.size() == 4;
    EXPECT_TRUE(alone || result.job.round_robin || result.job.share_optimizer);
  }
}

// Two devices must hold weights, gradients and three states of half of them each; a pipeline
// cannot, as all weights are in one layer.
TEST(SearchTest, SharesOptimizerStateWhereNothingElseFits) {
  simulate::Cluster cluster = made_up::cluster(1, 2);
  const CostConstants constants = made_up::constants();
  NetworkWork network = made_up::network({0.01, 0.01});
  network.layers[0].parameters = 1e6;
  const CostContext context{network, cluster, constants, constants.software[0]};
  SearchRequest request;
  request.devices = 2;
  request.global_batch = 8;
  request.optimizer_states = 2;
  const double whole = 4e6 * (1 + 1 + 2), shared = 4e6 * (1 + 1 + 1);
  request.memory_limit = 0.5 * (whole + shared);
  const SearchOutcome outcome = search_plans(context, request);
  ASSERT_FALSE(outcome.plans.empty());
  for (const SearchResult& plan : outcome.plans) {
    EXPECT_TRUE(plan.job.share_optimizer) << describe_shape(plan.job);
    EXPECT_LE(plan.memory, request.memory_limit);
  }
  request.share_optimizer = false;
  EXPECT_TRUE(search_plans(context, request).plans.empty());
  request.memory_limit = 1.1 * whole;
  request.share_optimizer.reset();
  EXPECT_FALSE(search_plans(context, request).plans.front().job.share_optimizer);
}

TEST(SearchTest, TriesReplicasInTurnAndEveryDivisionOfAHead) {
  const simulate::Cluster cluster = made_up::cluster(1, 4);
  const CostConstants constants = made_up::constants();
  const NetworkWork network = made_up::network(std::vector<double>(8, 0.01), 1e6);
  const CostContext context{network, cluster, constants, constants.software[0]};
  SearchRequest request;
  request.devices = 4;
  request.global_batch = 48;
  request.allow_stale = true;
  size_t turns = 0;
  for (const Candidate& candidate : candidates(context, request)) {
    if (!candidate.job.round_robin) continue;
    ++turns;
    EXPECT_EQ(candidate.job.schedule, parallel::ScheduleKind::one_f_one_b);
    EXPECT_FALSE(candidate.job.share_optimizer);
  }
  EXPECT_GT(turns, 0u);
  request.allow_stale = false;
  for (const Candidate& candidate : candidates(context, request)) {
    EXPECT_FALSE(candidate.job.round_robin);
  }
  request.head = {PlannedHead::Parallel::sampled, 1000};
  std::set<PlannedHead::Parallel> divisions;
  for (const Candidate& candidate : candidates(context, request)) {
    divisions.insert(candidate.job.head.parallel);
  }
  EXPECT_EQ(divisions.size(), 3u);
}

TEST(SearchTest, EveryOtherKindHasAReason) {
  const CostConstants constants = builtin_constants();
  const simulate::Cluster cluster = find_cluster("titanv-8", "--cluster");
  const NetworkWork network = work_of("vgg16", models::default_options("vgg16"));
  SearchRequest request;
  request.devices = 8;
  request.global_batch = 448;
  const SearchOutcome outcome =
      search_plans({network, cluster, constants, constants.system("millrace", "--as")}, request);
  ASSERT_FALSE(outcome.others.empty());
  for (const SearchResult& result : outcome.others) {
    const bool said = result.verdict.find("slower") != std::string::npos ||
                      result.verdict.find("does not fit") != std::string::npos;
    EXPECT_TRUE(said) << result.verdict;
    EXPECT_GT(result.samples_per_second, 0);
  }
}

TEST(SearchTest, ThirtyTwoThousandDevicesWithinAMinute) {
  simulate::Cluster cluster = find_cluster("v100-16gb-8", "--cluster");
  cluster.machines = 4096;
  cluster.network = {12.5e9, 3e-6};
  const CostConstants constants = builtin_constants();
  const NetworkWork network = work_of("resnet50", models::default_options("resnet50"));
  SearchRequest request;
  request.devices = 32768;
  request.global_batch = 32.0 * 32768;
  const std::clock_t begin = std::clock();
  const SearchOutcome outcome =
      search_plans({network, cluster, constants, constants.system("millrace", "--as")}, request);
  ASSERT_FALSE(outcome.plans.empty());
  EXPECT_EQ(outcome.plans.front().job.devices(), 32768);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 30);
}

}  // namespace
}  // namespace millrace::planner
