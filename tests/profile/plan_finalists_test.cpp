#include "profile/plan_finalists.h"

#include <gmock/gmock.h>

#include <set>

#include "planner/cluster/processor_machine.h"
#include "planner/cost/stage_cost.h"
#include "profile/calibration.h"

namespace millrace::profile {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

simulate::Cluster made_up_machine() {
  simulate::Cluster machine;
  machine.name = "made up";
  machine.host_cores = 2;
  machine.host_memory_bytes = 4e9;
  machine.devices_in_host_memory = true;
  machine.device = {"cores", 4e9, 2e11, 2e11, 0, 3e10};
  machine.classes = {{"NODE", {1e10, 1e-6}}};
  machine.links = {{"X"}};
  return machine;
}

class PlanFinalistsTest : public ::testing::Test {
 protected:
  PlanFinalistsTest() {
    request_.search.global_batch = 16;
    request_.search.recompute = false;
  }

  // Merged over these numbers of devices.
  HereCandidates found(const std::vector<int>& counts) {
    HereCandidates all;
    for (const int count : counts) {
      const simulate::Cluster cluster = planner::divided(machine_, count);
      request_.search.devices = count;
      all.merge(candidates_here({network_, cluster, constants_, constants_.system("millrace", "")},
                                request_));
    }
    return all;
  }

  simulate::Cluster machine_ = made_up_machine();
  planner::CostConstants constants_ = planner::builtin_constants();
  planner::NetworkWork network_ =
      planner::work_of("fashion_cnn", models::default_options("fashion_cnn"));
  HereRequest request_;
};

std::set<std::string> schedules_of(const std::vector<HereCandidate>& list) {
  std::set<std::string> names;
  for (const HereCandidate& one : list) {
    if (one.job.stages.size() > 1) names.insert(std::string(parallel::name_of(one.plan.schedule)));
  }
  return names;
}

TEST(DividedMachineTest, DevicesShareRatesAndMemory) {
  const simulate::Cluster four = planner::divided(made_up_machine(), 4);
  EXPECT_EQ(four.devices(), 4);
  EXPECT_DOUBLE_EQ(four.device.fp32_operations, 5e10);
  EXPECT_DOUBLE_EQ(four.device.memory_bandwidth, 7.5e9);
  EXPECT_DOUBLE_EQ(four.device.memory_bytes, 4e9);
  EXPECT_DOUBLE_EQ(four.link_between(0, 3).bandwidth, 1e10);
  const simulate::Cluster two = planner::divided(four, 2);
  EXPECT_DOUBLE_EQ(two.device.fp32_operations, 1e11);
}

TEST_F(PlanFinalistsTest, EveryKindIsAmongThem) {
  request_.search.allow_stale = true;
  const HereCandidates all = found({1, 2});
  EXPECT_EQ(schedules_of(all.list), (std::set<std::string>{"1f1b-flush", "zero-bubble",
                                                           "interleaved", "1f1b", "ssp", "2bw"}));
  for (size_t i = 1; i < all.list.size(); ++i) {
    EXPECT_LE(all.list[i - 1].estimated_seconds, all.list[i].estimated_seconds);
  }
  const std::vector<size_t> finalists = choose_finalists(all.list, 12);
  EXPECT_EQ(finalists.size(), 12u);
  EXPECT_THAT(finalists, Contains(0u));
  std::vector<HereCandidate> chosen;
  std::set<int> devices;
  std::set<std::string> plans;
  bool shares = false;
  for (const size_t i : finalists) {
    chosen.push_back(all.list[i]);
    devices.insert(all.list[i].devices());
    plans.insert(parallel::to_json(all.list[i].plan).dump());
    shares = shares || all.list[i].plan.share_optimizer;
    EXPECT_DOUBLE_EQ(all.list[i].samples(), 16);
  }
  EXPECT_EQ(schedules_of(chosen), schedules_of(all.list));
  EXPECT_EQ(devices, (std::set<int>{1, 2}));
  EXPECT_EQ(plans.size(), 12u);
  EXPECT_TRUE(shares);
  EXPECT_EQ(choose_finalists(all.list, 2).size(), 2u);
  EXPECT_EQ(choose_finalists(all.list, 1000).size(), all.list.size());
}

TEST_F(PlanFinalistsTest, NeighboursHaveHalfOrTwiceTheMicroBatches) {
  const HereCandidates all = found({2});
  const auto is_middle = [](const HereCandidate& one) {
    return one.plan.schedule == parallel::ScheduleKind::zero_bubble && one.job.micro_batches == 4;
  };
  const auto middle = std::find_if(all.list.begin(), all.list.end(), is_middle);
  ASSERT_NE(middle, all.list.end());
  std::set<int> counts;
  for (const size_t i : neighbours_of(*middle, all.list)) {
    EXPECT_EQ(all.list[i].plan.schedule, parallel::ScheduleKind::zero_bubble);
    counts.insert(all.list[i].job.micro_batches);
  }
  EXPECT_EQ(counts, (std::set<int>{2, 8}));
}

TEST_F(PlanFinalistsTest, FlagsRestrictThem) {
  request_.search.schedule = parallel::ScheduleKind::zero_bubble;
  EXPECT_EQ(schedules_of(found({2}).list), (std::set<std::string>{"zero-bubble"}));
  request_.search.schedule.reset();
  EXPECT_EQ(schedules_of(found({2}).list),
            (std::set<std::string>{"1f1b-flush", "zero-bubble", "interleaved"}));
}

TEST_F(PlanFinalistsTest, DevicesShareTheMemoryOfTheMachine) {
  const double most = found({2}).list.front().memory;
  machine_.host_memory_bytes = most - 1;
  const HereCandidates all = found({2});
  bool refused = false;
  for (const HereCandidate& one : all.list) {
    EXPECT_EQ(one.fits, one.memory <= machine_.host_memory_bytes) << one.shape;
    EXPECT_THAT(one.reason, one.fits ? HasSubstr("") : HasSubstr("together"));
    refused = refused || !one.fits;
  }
  EXPECT_TRUE(refused);
  for (const size_t i : choose_finalists(all.list, 1000)) EXPECT_TRUE(all.list[i].fits);
}

TEST_F(PlanFinalistsTest, CalibratedLayersTakeWhatWasMeasured) {
  const simulate::Cluster cluster = planner::divided(machine_, 1);
  const planner::SoftwareConstants software = constants_.system("millrace", "");
  const size_t count = network_.layers.size();
  JobProfile few, many;
  few.samples = 4;
  many.samples = 16;
  double forward = 0, backward = 0;
  for (size_t i = 0; i < count; ++i) {
    const double x = 1e-3 * static_cast<double>(i + 1);
    LayerCost layer;
    layer.name = network_.layers[i].name;
    layer.update_seconds = i == 1 ? 0.5 : 0;
    const bool joined = i == 2;
    layer.forward_seconds = joined ? 0 : 10 * x;
    layer.backward_seconds = joined ? 0 : 16 * x;
    many.layers.push_back(layer);
    layer.forward_seconds = layer.backward_seconds = joined ? 0 : 4 * x;
    few.layers.push_back(layer);
    forward += many.layers[i].forward_seconds;
    backward += many.layers[i].backward_seconds;
  }
  planner::NetworkWork network = network_;
  calibrate(network, few, many);
  planner::PlannedJob job;
  job.batch = 16;
  job.stages = {{{0}, 0, static_cast<int>(count)}};
  const auto cost_of = [&](const planner::NetworkWork& work) {
    return planner::stage_cost({work, cluster, constants_, software}, job, 0);
  };
  EXPECT_NEAR(cost_of(network).forward, forward, 1e-9);
  EXPECT_NEAR(cost_of(network).backward_seconds(), backward, 1e-9);
  EXPECT_NEAR(cost_of(network).update, 0.5, 1e-9);
  EXPECT_NEAR(cost_of(slower(network, 2)).forward, 2 * forward, 1e-9);
  EXPECT_NEAR(cost_of(slower(network, 2)).update, 1, 1e-9);
  job.batch = 4;
  EXPECT_NEAR(cost_of(network).forward, 0.4 * forward, 1e-9);
  EXPECT_NEAR(cost_of(network).backward_seconds(), 0.25 * backward, 1e-9);
  job.batch = 8;
  EXPECT_NEAR(cost_of(network).forward, 0.6 * forward, 1e-9);

  job.stages = {{{0}, 0, 2}, {{1}, 2, static_cast<int>(count)}};
  cut_behind_joined(network, job);
  EXPECT_EQ(job.stages[0].end, 3);
  EXPECT_EQ(job.stages[1].begin, 3);
  cut_behind_joined(network, job);
  EXPECT_EQ(job.stages[0].end, 3);
}

}  // namespace
}  // namespace millrace::profile
