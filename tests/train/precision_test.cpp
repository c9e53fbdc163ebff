// Training with activations kept in 16 bits: close to float32, the same on many devices, exact when
// resumed.
#include <gmock/gmock.h>

#include <cmath>

#include "support.h"
#include "train/job_record.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

class PrecisionTest : public DirectoryTest {
 protected:
  static TrainJob job(graph::DataType type) {
    TrainJob job = small_job();
    job.options.batch = 16;
    job.steps = 10;
    job.learning_rate.base = 0.02;
    job.precision = {.type = type, .arithmetic = passes::PrecisionSettings::Arithmetic::storage};
    return job;
  }

  std::vector<double> losses(const TrainJob& job) { return run_training(job, recorder_).losses; }

  Recorder recorder_;
};

void expect_within(const std::vector<double>& actual, const std::vector<double>& expected,
                   double share) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], share * expected[i]) << "step " << i;
  }
}

TEST_F(PrecisionTest, TenStepsAreWithinOnePercentOfFloat32) {
  const std::vector<double> usual = losses(job(graph::DataType::f32));
  for (const graph::DataType type : {graph::DataType::f16, graph::DataType::bf16}) {
    const std::vector<double> stored = losses(job(type));
    expect_within(stored, usual, 0.01);
    EXPECT_EQ(stored[0], usual[0]);  // the forward pass is the same
    EXPECT_THAT(stored, Not(ElementsAreArray(usual)));
  }
}

TEST_F(PrecisionTest, WithEveryLayerKeptItIsFloat32) {
  TrainJob kept = job(graph::DataType::f16);
  const graph::Graph network = models::build_model(kept.model, kept.options);
  for (graph::OperatorId id : network.order()) kept.precision.keep.push_back(network.op(id).name);
  EXPECT_THAT(losses(kept), ElementsAreArray(losses(job(graph::DataType::f32))));
}

TEST_F(PrecisionTest, RunsOnManyDevicesAndInStages) {
  const std::vector<double> usual = losses(job(graph::DataType::f32));
  const auto placed = [&](const char* placement, int64_t micro_batches) {
    TrainJob many = job(graph::DataType::f16);
    many.oversubscribe = true;
    many.plan.stages = parallel::parse_stages(placement);
    many.plan.micro_batches = micro_batches;
    many.plan.schedule = parallel::ScheduleKind::one_f_one_b_flush;
    return losses(many);
  };
  // Statistics are those of each device or micro-batch, so the losses are only alike.
  expect_within(placed("0:0-1", 1), usual, 0.2);
  expect_within(placed("0:0.0:1", 2), usual, 0.2);
}

TEST_F(PrecisionTest, AResumedRunIsExact) {
  TrainJob whole = job(graph::DataType::bf16);
  const std::vector<double> expected = losses(whole);
  TrainJob part = whole;
  part.checkpoint = directory_ / "checkpoint";
  part.checkpoint_every = {.steps = 4};
  part.steps = 4;
  losses(part);
  part.steps = 10;
  part.resume = true;
  const std::vector<double> rest = losses(part);
  EXPECT_THAT(rest, ElementsAreArray(expected.begin() + 4, expected.end()));
}

TEST_F(PrecisionTest, RecordsAndSummariesSayIt) {
  const TrainJob fp16 = job(graph::DataType::f16);
  const TrainResult result = run_training(fp16, recorder_);
  const Json summary = summary_of(fp16, result);
  EXPECT_EQ(summary["precision"], "fp16");
  EXPECT_EQ(summary_of(job(graph::DataType::f32), result)["precision"], "fp32");
  EXPECT_EQ(describe_job(fp16)["precision"], "fp16");
  ASSERT_EQ(recorder_.starts.size(), 1u);
  EXPECT_THAT(recorder_.starts[0].arithmetic, HasSubstr("stored in fp16"));
}

TEST_F(PrecisionTest, UnknownLayersAreRefused) {
  TrainJob wrong = job(graph::DataType::f16);
  wrong.precision.keep = {"conv99"};
  EXPECT_THAT(input_error_of([&] { losses(wrong); }), HasSubstr("‹precision_keep› names 'conv99'"));
}

}  // namespace
}  // namespace millrace::train
