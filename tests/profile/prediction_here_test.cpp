// Predictions of small jobs here, and the machine itself.
#include "profile/prediction_here.h"

#include <gmock/gmock.h>

#include "profile/check.h"
#include "profile/costs_text.h"
#include "profile/machine.h"
#include "small_job.h"

namespace millrace::profile {
namespace {

struct Case {
  const char* placement;
  int64_t micro_batches;
  parallel::ScheduleKind schedule;
};

class Predictions : public ::testing::TestWithParam<Case> {};

TEST_P(Predictions, MemoryIsExactAndTimeIsThere) {
  train::TrainJob job = small_job(GetParam().placement, GetParam().micro_batches);
  job.plan.schedule = GetParam().schedule;
  train::TrainingObserver silent;
  const HerePrediction prediction = predict_here(job, {.rounds = 3}, silent);
  EXPECT_EQ(prediction.steps.seconds.size(), 3u);
  EXPECT_GT(prediction.step_seconds, 0);
  EXPECT_GE(prediction.error_estimate, 0);
  const train::TrainResult result = train::run_training(job, silent);
  const Json report = compare(job, to_json(prediction), result, false);
  EXPECT_TRUE(report["arena_exact"].get<bool>());
  EXPECT_EQ(report["devices"].size(), result.devices.size());
  EXPECT_FALSE(report.contains("rss_error"));
  EXPECT_NEAR(report["error"].get<double>(),
              prediction.step_seconds / report["measured_step_seconds"].get<double>() - 1, 1e-9);
  // What is alive at once in the simulation is what the arenas were made for.
  std::vector<double> arenas(prediction.result.peak_memory.size(), 0.0);
  for (const train::DeviceReport& device : result.devices) {
    arenas[static_cast<size_t>(parallel::parse_stages(device.id)[0].devices[0].device)] +=
        static_cast<double>(device.arena_bytes);
  }
  for (size_t i = 0; i < arenas.size(); ++i) {
    EXPECT_LE(prediction.result.peak_memory[i], arenas[i]);
    EXPECT_GT(prediction.result.peak_memory[i], 0.6 * arenas[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Predictions,
    ::testing::Values(Case{"0:0", 1, parallel::ScheduleKind::gpipe},
                      Case{"0:0", 4, parallel::ScheduleKind::gpipe},
                      Case{"0:0-1", 1, parallel::ScheduleKind::gpipe},
                      Case{"0:0.0:1", 4, parallel::ScheduleKind::one_f_one_b_flush},
                      Case{"0:0.0:1", 4, parallel::ScheduleKind::zero_bubble},
                      Case{"0:0.0:1.0:2", 1, parallel::ScheduleKind::one_f_one_b},
                      Case{"0:0-1.0:2", 2, parallel::ScheduleKind::gpipe},
                      Case{"0:0.0:1", 4, parallel::ScheduleKind::two_bw},
                      Case{"0:0.0:0", 2, parallel::ScheduleKind::gpipe}));

TEST(CostsTextTest, ComesBack) {
  CostsOfMember one;
  one.stage = 2;
  one.member = 1;
  one.spread = 0.25;
  one.copies = {{"a", 1.5}};
  one.program.tasks[parallel::Work::forward] = {
      {simulate::CostedStep::Kind::compute, graph::Phase::forward, 1, 2, 0, 0, -1}};
  one.program.tasks[parallel::Work::update] = {
      {simulate::CostedStep::Kind::post, graph::Phase::update, 0, 0, 64, 32, 3}};
  one.program.saved_bytes = 7;
  const auto again = costs_from_text(costs_to_text({one}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(costs_to_text(again), costs_to_text({one}));
  EXPECT_EQ(again[0].program.tasks[parallel::Work::update][0].bytes, 64);
  EXPECT_EQ(again[0].program.tasks[parallel::Work::forward][0].busy_seconds, 2);
}

TEST(MeasuredMachineTest, IsAClusterThatCanBeRead) {
  const simulate::Cluster cluster = measure_machine({.devices = 2, .threads = 1});
  const simulate::Cluster again =
      planner::parse_cluster(planner::describe(cluster).dump(), "here.json");
  EXPECT_EQ(again.devices(), 2);
  EXPECT_GT(again.device.fp32_operations, 1e8);
  EXPECT_GT(again.device.memory_bandwidth, 1e7);
  EXPECT_GT(again.link_between(0, 1).bandwidth, 1e6);
  EXPECT_GT(again.link_between(0, 1).latency, 0);
}

}  // namespace
}  // namespace millrace::profile
