// A margin head as the last stage of a pipeline is the head of one device.
#include <gtest/gtest.h>

#include <cmath>

#include "placed_job.h"
#include "support.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

std::vector<double> losses(
    const std::string& placement, graph::HeadParallel parallel, double rate,
    parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush,
    int64_t micro_batches = 1) {
  TrainJob job = placed_job(placement, micro_batches, 4);
  job.model = "mobilefacenet";
  job.options = models::default_options(job.model);
  job.options.batch = 12;
  job.options.image = 16;
  job.options.classes = 60;
  job.options.head = graph::MarginHeadOptions{};
  job.options.head->addend = 0.5;
  job.options.head->parallel = parallel;
  job.options.head->sample_rate = rate;
  job.learning_rate.base = 1e-5;  // more would make much of what sums are rounded by
  job.plan.schedule = schedule;
  job.plan.sharding.synchronise_batch_norm = true;
  Recorder recorder;
  return run_training(job, recorder).losses;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << "step " << i;
  }
}

TEST(HeadPipelineTest, ASampleIsTheOneThatOneDeviceTakes) {
  const std::vector<double> alone = losses("0:0", graph::HeadParallel::pfc, 0.3);
  expect_near(losses("0:0.0:1", graph::HeadParallel::pfc, 0.3), alone);
  EXPECT_GT(std::abs(losses("0:0", graph::HeadParallel::pfc, 1)[0] - alone[0]), 1e-3);
}

TEST(HeadPipelineTest, ASampleOfAllOverTwoDevicesIsTheWholeHeadOnOne) {
  const std::vector<double> all = losses("0:0.0:1-2", graph::HeadParallel::pfc, 1);
  expect_near(all, losses("0:0", graph::HeadParallel::mp, 1));
  EXPECT_EQ(all, losses("0:0.0:1-2", graph::HeadParallel::mp, 1));
}

// With norms that do not look at the batch, micro-batches change nothing but the order of sums.
std::vector<double> accumulated(const std::string& placement, int64_t micro_batches, double rate,
                                graph::HeadMomentum momentum = graph::HeadMomentum::lazy) {
  TrainJob job = placed_job(placement, micro_batches, 5);
  job.model = "mobilefacenet";
  job.options = models::default_options(job.model);
  job.options.batch = 12;
  job.options.image = 16;
  job.options.classes = 40;
  job.options.head = graph::MarginHeadOptions{};
  job.options.head->addend = 0.2;
  job.options.head->scale = 16;
  job.options.head->parallel = graph::HeadParallel::pfc;
  job.options.head->sample_rate = rate;
  job.options.head->momentum = momentum;
  job.trained.freeze_norms = true;
  job.learning_rate.base = 0.001;
  Recorder recorder;
  return run_training(job, recorder).losses;
}

TEST(HeadPipelineTest, MicroBatchesShareTheSampleOfTheirStep) {
  for (const char* placement : {"0:0", "0:0-1", "0:0.0:1"}) {
    const bool divided = placement == std::string("0:0-1");
    const std::vector<double> whole = accumulated(divided ? placement : "0:0", 1, 0.3);
    EXPECT_GT(std::abs(whole[4] - whole[0]), 1e-2 * whole[0]) << placement;
    for (const int64_t parts : {2, 4}) {
      const std::vector<double> found = accumulated(placement, parts, 0.3);
      ASSERT_EQ(found.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_NEAR(found[i], whole[i], 1e-5 * whole[0])
            << placement << ", " << parts << " parts, step " << i;
      }
    }
  }
}

// A sample too small for the labels of the step consists of them.
TEST(HeadPipelineTest, MicroBatchesShareASampleOfTheirLabelsAlone) {
  const auto none = graph::HeadMomentum::none;
  const std::vector<double> whole = accumulated("0:0", 1, 0.05, none);
  const std::vector<double> found = accumulated("0:0", 3, 0.05, none);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], whole[i], 2e-4 * whole[i]);
}

TEST(HeadPipelineTest, EachMiniBatchOfAPipelineThatNeverDrainsSamples) {
  const parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b;
  expect_near(losses("0:0.0:1", graph::HeadParallel::pfc, 1, schedule),
              losses("0:0.0:1", graph::HeadParallel::mp, 1, schedule));
  const std::vector<double> sampled = losses("0:0.0:1", graph::HeadParallel::pfc, 0.3, schedule);
  // Nothing is late in the first step.
  EXPECT_NEAR(sampled[0], losses("0:0", graph::HeadParallel::pfc, 0.3)[0], 1e-5 * sampled[0]);
}

}  // namespace
}  // namespace millrace::train
