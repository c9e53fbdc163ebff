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
    parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush) {
  TrainJob job = placed_job(placement, 1, 4);
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
