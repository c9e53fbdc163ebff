// Plans over profiles: what is read off them, and that ours are never worse than PipeDream's.
#include "planner/search/profiled_network.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "made_up.h"
#include "planner/search/search.h"
#include "reference.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kSamples = 64;  // of the profiles' mini-batch

PlannedStage stage(std::vector<int> devices, int begin, int end) {
  return {std::move(devices), begin, end};
}

bool same(const PlannedStage& a, const PlannedStage& b) {
  return a.devices == b.devices && a.begin == b.begin && a.end == b.end;
}

// n0 feeds n1 and n2, which feed n3; n4 behind it; n5 on its own; an input before n0.
Profile fork() {
  Profile profile = reference::make_profile(7, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}, {6, 0}}, 5);
  profile.nodes[6].description = "Input0";
  return profile;
}

TEST(ProfiledNetworkTest, LayersHaveWhatTheProfileSays) {
  const Profile profile = fork();
  const std::vector<int> order = {0, 2, 1, 3, 4};
  const NetworkWork network = work_of(profile, order, kSamples);
  ASSERT_EQ(network.layers.size(), order.size());
  const auto bytes = [&](int node) { return profile.nodes[node].activation_bytes; };
  const double cuts[] = {bytes(0), bytes(0) + bytes(2), bytes(1) + bytes(2), bytes(3), 0};
  for (size_t i = 0; i < order.size(); ++i) {
    const LayerWork& layer = network.layers[i];
    const ProfileNode& node = profile.nodes[order[i]];
    EXPECT_EQ(layer.name, node.id);
    EXPECT_DOUBLE_EQ(layer.parameters * 4, node.parameter_bytes);
    ASSERT_TRUE(layer.measured);
    EXPECT_DOUBLE_EQ(layer.measured->forward.at(kSamples), node.forward_milliseconds / 1000);
    EXPECT_DOUBLE_EQ(layer.measured->backward.at(kSamples / 2), node.backward_milliseconds / 2000);
    EXPECT_DOUBLE_EQ(layer.saved.at(kSamples) * 4, node.activation_bytes);
    EXPECT_NEAR(layer.cut.at(kSamples) * 4, cuts[i], 1e-6);
  }
  EXPECT_DOUBLE_EQ(network.layers[3].largest.at(kSamples) * 4,
                   std::max({bytes(1), bytes(2), bytes(3)}));
  EXPECT_DOUBLE_EQ(network.input.at(kSamples) * 4, bytes(6));
  const ProfiledNetwork planned = divide_profile(profile, {.levels = {{2, 1e9}}}, kSamples);
  EXPECT_EQ(planned.network.layers.size(), 5u);
  EXPECT_THAT(planned.ignored, ElementsAre("n5"));
}

TEST(ProfiledNetworkTest, StagesTakeTheMeasuredSeconds) {
  const Profile profile = fork();
  const NetworkWork network = work_of(profile, {0, 1, 2, 3, 4}, kSamples);
  const simulate::Cluster cluster = cluster_of({{2, 1e9}});
  CostConstants constants = made_up::constants();
  constants.software[0].slowness = 3;  // of what is found by formula
  PlannedJob job = made_up::straight(2, 5);
  job.batch = kSamples;
  double forward = 0, backward = 0;
  for (const int node : {0, 1}) {
    forward += profile.nodes[node].forward_milliseconds / 1000;
    backward += profile.nodes[node].backward_milliseconds / 1000;
  }
  const StageCost cost = stage_cost({network, cluster, constants, constants.software[0]}, job, 0);
  EXPECT_NEAR(cost.forward, 2 * forward, 1e-12);
  EXPECT_NEAR(cost.backward_seconds(), 2 * backward, 1e-12);
  EXPECT_EQ(cost.update, 0);
  const StageTimes times({network, cluster, constants, constants.software[0]}, job);
  EXPECT_NEAR(times.compute(0, 2, 1), 2 * (forward + backward), 1e-12);
}

TEST(ProfiledNetworkTest, ModelsTakeTimesByName) {
  NetworkWork network = made_up::network({1, 1});
  network.layers[0].name = "a";
  network.layers[1].name = "b";
  Profile profile = reference::make_profile(2, {{0, 1}}, 1);
  profile.nodes[0].id = "b";
  profile.nodes[1].description = "linear(a)";
  profile.nodes[1].update_milliseconds = 7;
  set_measured(network, profile, 4, "x.txt");
  EXPECT_DOUBLE_EQ(network.layers[0].measured->forward.at(4),
                   profile.nodes[1].forward_milliseconds / 1000);
  EXPECT_DOUBLE_EQ(network.layers[0].measured->update, 0.007);
  EXPECT_DOUBLE_EQ(network.layers[1].measured->backward.at(8),
                   profile.nodes[0].backward_milliseconds / 500);
  network.layers[1].name = "c";
  try {
    set_measured(network, profile, 4, "x.txt");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'x.txt' has no operator 'c'"));
  }
}

TEST(ProfiledNetworkTest, MiniBatchesStayWithinAMachine) {
  // Three machines of four: the first stage on two of them, inside it three devices and one.
  const PipelineStage inner{{0, 1}, 3, {}}, last{{2}, 1, {}}, all{{3, 4}, 4, {}};
  const std::vector<PipelineStage> outer = {{{0, 1, 2}, 2, {inner, last}}, {{3, 4}, 1, {all}}};
  const Division division = place_division(outer, {{4, 1e10}, {3, 1e9}});
  ASSERT_EQ(division.size(), 3u);
  EXPECT_TRUE(same(division[0], stage({0, 4, 1, 5, 2, 6}, 0, 2)));
  EXPECT_TRUE(same(division[1], stage({3, 7}, 2, 3)));
  EXPECT_TRUE(same(division[2], stage({8, 9, 10, 11}, 3, 5)));
  for (int batch = 0; batch < 12; ++batch) {
    EXPECT_EQ(division[0].devices[batch % 6] / 4, division[1].devices[batch % 2] / 4);
  }
}

TEST(ProfiledNetworkTest, LevelsAreClusters) {
  const simulate::Cluster cluster = cluster_of({{4, 1e10}, {2, 1e9}});
  EXPECT_EQ(cluster.devices(), 8);
  EXPECT_EQ(cluster.link_between(0, 3).bandwidth, 1e10);
  EXPECT_EQ(cluster.link_between(3, 4).bandwidth, 1e9);
  EXPECT_THROW(cluster_of({{2, 1e9}, {2, 1e9}, {2, 1e9}}), InputError);
  EXPECT_THROW(cluster_of({{4096, 1e9}}), InputError);
  EXPECT_THROW(cluster_of({{1024, 1e9}, {1024, 1e9}}), InputError);
}

struct Comparison {
  int compared = 0;  // plans of PipeDream that fit
  int better = 0;    // where ours is faster by more than a percent
};

// PipeDream's division, flattened and simulated here on its own, against what the search finds.
void compare(const Profile& profile, const PipedreamOptions& options, double memory,
             Comparison& result) {
  const CostConstants constants = builtin_constants();
  const SoftwareConstants& software = constants.system("millrace", "--as");
  simulate::Cluster cluster = cluster_of(options.levels);
  if (memory > 0) cluster.device.memory_bytes = memory;
  const ProfiledNetwork planned = divide_profile(profile, options, kSamples);
  const CostContext context{planned.network, cluster, constants, software};
  SearchRequest request;
  request.devices = cluster.devices();
  request.global_batch = kSamples * cluster.devices();
  request.allow_stale = true;
  request.straight = options.straight;
  request.fewer = options.fewer;
  request.trained = false;
  request.divisions = planned.divisions;
  const SearchOutcome ours = search_plans(context, request);
  const PipedreamPlan plan = optimize_pipedream(profile, options);
  ASSERT_EQ(plan.stages.empty(), !ours.pipedream.has_value());
  if (plan.stages.empty()) return;

  PlannedJob theirs;
  theirs.stages = place_division(plan.stages, options.levels);
  const NetworkWork network = work_of(profile, planned_order(profile, plan.stages), kSamples);
  if (theirs.stages.size() > 1) {
    theirs.schedule = parallel::ScheduleKind::one_f_one_b;
    theirs.round_robin = true;
  }
  theirs.batch = kSamples;
  const Prediction prediction = predict(CostContext{network, cluster, constants, software}, theirs);
  EXPECT_NEAR(ours.pipedream->samples_per_second, prediction.samples_per_second,
              1e-9 * prediction.samples_per_second);
  EXPECT_EQ(ours.pipedream->fits, prediction.fits);
  if (!prediction.fits) return;
  ASSERT_FALSE(ours.plans.empty());
  const double best = ours.plans.front().samples_per_second;
  EXPECT_GE(best, prediction.samples_per_second * (1 - 1e-9));
  ++result.compared;
  result.better += best > prediction.samples_per_second * 1.01 ? 1 : 0;
  for (const SearchResult& one : ours.plans) {
    for (const PlannedStage& part : one.job.stages) {
      EXPECT_TRUE(!options.straight || part.devices.size() == 1u);
    }
    EXPECT_TRUE(options.fewer || one.job.devices() == cluster.devices());
  }
}

// Straight or not, idle workers or not, memory limited or not: three of the eight combinations on
// each machine, so that each is on every third or so.
void compare_all(const Profile& profile, const std::vector<std::vector<Level>>& machines,
                 double memory) {
  Comparison result;
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    for (const size_t turn : {0, 3, 6}) {
      const size_t bits = (machine + turn) % 8;
      PipedreamOptions options{.levels = machines[machine]};
      options.straight = (bits & 1) != 0;
      options.fewer = (bits & 2) != 0;
      const bool limited = (bits & 4) != 0;
      if (limited) options.memory_bytes = memory;
      if (machine % 2 == 0) options.activation_ratio = 1;
      compare(profile, options, limited ? memory : 0, result);
    }
  }
  EXPECT_GT(2 * result.compared, static_cast<int>(machines.size()));
  EXPECT_GT(result.better, 0);
}

class NeverWorse : public ::testing::TestWithParam<const char*> {};

TEST_P(NeverWorse, OnPublishedProfiles) {
  std::vector<std::vector<Level>> machines;
  for (const int workers : {2, 3, 5, 8, 16}) machines.push_back({{workers, 1e9}});
  for (const auto& [inner, outer] : {std::pair(2, 2), {3, 3}, {8, 2}}) {
    machines.push_back({{inner, 1e10}, {outer, 1e9}});
  }
  compare_all(reference::published(GetParam()), machines, 16e9);
}

INSTANTIATE_TEST_SUITE_P(Both, NeverWorse, ::testing::Values("alexnet", "vgg16"));

TEST(ProfiledNetworkTest, NeverWorseOnBranchingGraphs) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    compare_all(reference::random_profile(9, 0.3, seed),
                {{{2, 1e9}}, {{5, 4e9}}, {{8, 1e8}}, {{2, 1e10}, {3, 1e9}}}, 2e9);
  }
}

}  // namespace
}  // namespace millrace::planner
