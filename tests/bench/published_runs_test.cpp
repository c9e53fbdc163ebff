#include "bench/published_runs.h"

#include <gmock/gmock.h>

#include <cmath>
#include <memory>

#include "base/error.h"

namespace millrace::bench {
namespace {

using ::testing::HasSubstr;

class PublishedRunsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    tables_ = std::make_unique<planner::PublishedTables>(
        planner::published_tables(planner::builtin_constants()));
  }
  static void TearDownTestSuite() { tables_.reset(); }

  // The first row of a system's model on so many stages and devices.
  static const planner::PublishedRow& row(const std::string& system, const std::string& model,
                                          size_t stages, int devices) {
    for (const planner::PublishedRow& row : tables_->rows) {
      if (row.system == system && row.model == model && row.job.stages.size() == stages &&
          row.job.devices() == devices) {
        return row;
      }
    }
    throw std::logic_error("there is no such row");
  }

  static std::unique_ptr<planner::PublishedTables> tables_;
};

std::unique_ptr<planner::PublishedTables> PublishedRunsTest::tables_;

TEST_F(PublishedRunsTest, OneFlowsPipelineKeepsItsStagesAndOrder) {
  const train::TrainJob job = reduced_job(*tables_, row("oneflow", "vgg16", 2, 8), {});
  EXPECT_EQ(job.model, "vgg16");
  EXPECT_EQ(parallel::to_string(job.plan.stages), "0:0-6.0:7");
  EXPECT_EQ(job.plan.schedule, parallel::ScheduleKind::ssp);
  EXPECT_FALSE(job.plan.round_robin);
  EXPECT_EQ(job.plan.cut_after.size(), 1u);
  EXPECT_EQ(job.precision.type, graph::DataType::f32);
  EXPECT_EQ(job.options.batch, 2 * 8);
  EXPECT_EQ(job.options.image, 32);
  EXPECT_EQ(job.steps, 4);
}

TEST_F(PublishedRunsTest, OneFlowsReplicasKeepTheirPrecision) {
  const train::TrainJob job =
      reduced_job(*tables_, row("oneflow", "resnet50", 1, 32), {.batch = 3});
  EXPECT_EQ(parallel::to_string(job.plan.stages), "0:0-31");
  EXPECT_EQ(job.plan.schedule_name(), "data");
  EXPECT_EQ(job.precision.type, graph::DataType::f16);
  EXPECT_EQ(job.options.batch, 3 * 32);
}

TEST_F(PublishedRunsTest, PipeDreamsReplicasTakeTurnsWithImagesThatAlexNetTakes) {
  const planner::PublishedRow& published = row("pipedream", "alexnet", 2, 8);
  const train::TrainJob job = reduced_job(*tables_, published, {});
  EXPECT_EQ(parallel::to_string(job.plan.stages), "0:0-6.0:7");
  EXPECT_EQ(job.plan.schedule, parallel::ScheduleKind::one_f_one_b);
  EXPECT_TRUE(job.plan.round_robin);
  EXPECT_EQ(job.precision.type, graph::DataType::f32);
  EXPECT_EQ(job.options.batch, 2);
  EXPECT_EQ(job.options.image, 63);
  EXPECT_EQ(reduced_job(*tables_, published, {.image = 100}).options.image, 100);
}

TEST_F(PublishedRunsTest, InsightFacesHeadsKeepTheirKindAndShrink) {
  for (const planner::PublishedRow& published : tables_->rows) {
    if (published.system != "insightface") continue;
    const train::TrainJob job = reduced_job(*tables_, published, {});
    ASSERT_TRUE(job.options.head.has_value()) << published.label;
    EXPECT_EQ(parallel::to_string(job.plan.stages), "0:0-7");
    EXPECT_EQ(job.precision.type, graph::DataType::f16);
    EXPECT_EQ(job.options.classes, std::llround(published.job.head.classes / 1000));
    EXPECT_EQ(job.options.head->classes, job.options.classes);
    const bool sampled = published.job.head.parallel == planner::PlannedHead::Parallel::sampled;
    EXPECT_EQ(job.options.head->parallel == graph::HeadParallel::pfc, sampled) << published.label;
    EXPECT_EQ(job.options.head->sample_rate, sampled ? 0.1 : 1) << published.label;
    EXPECT_EQ(full_job(*tables_, published).options.batch, 128 * 8);
  }
}

TEST_F(PublishedRunsTest, ARowRunsHere) {
  const ReducedSize size = {.steps = 2};
  const train::TrainJob job = reduced_job(*tables_, row("oneflow", "resnet50", 1, 1), size);
  Json described;
  add_run(job, size, described);
  ASSERT_TRUE(described.contains("run")) << described.dump();
  const Json& run = described["run"];
  EXPECT_EQ(run["image"], 32);
  EXPECT_EQ(run["batch"], 2);
  EXPECT_EQ(run["devices"], 1);
  EXPECT_EQ(run["steps"], 2);
  EXPECT_GT(run["samples_per_second"], 0.0);
  EXPECT_NEAR(run["first_loss"].get<double>(), std::log(1000.0), 3);
  EXPECT_GT(run["last_loss"], 0.0);

  Json memory;
  add_exact_memory(job, memory);
  ASSERT_EQ(memory["exact_memory_mib"].size(), 1u) << memory.dump();
  const double mebibytes = run["peak_bytes"].get<double>() / 1024 / 1024;
  EXPECT_NEAR(memory["exact_memory_mib"][0].get<double>(), mebibytes, 0.5);
}

TEST_F(PublishedRunsTest, EveryStageHasItsMemory) {
  const train::TrainJob job = reduced_job(*tables_, row("oneflow", "alexnet", 2, 8), {});
  Json described;
  add_exact_memory(job, described);
  ASSERT_EQ(described["exact_memory_mib"].size(), 2u) << described.dump();
  // Weights, gradients and momentum at least, of 61,100,840 parameters in all.
  const double all = described["exact_memory_mib"][0].get<double>() +
                     described["exact_memory_mib"][1].get<double>();
  EXPECT_GT(all, 61100840 * 3 * 4 / 1024.0 / 1024.0);
}

TEST_F(PublishedRunsTest, WhatCannotRunSaysWhy) {
  train::TrainJob job = reduced_job(*tables_, row("oneflow", "resnet50", 1, 1), {});
  job.options.image = 0;
  Json described;
  add_exact_memory(job, described);
  add_run(job, {}, described);
  EXPECT_THAT(described["exact_note"].get<std::string>(), HasSubstr("image"));
  EXPECT_THAT(described["run_note"].get<std::string>(), HasSubstr("image"));
  EXPECT_FALSE(described.contains("run"));
}

TEST_F(PublishedRunsTest, WhatNeedsTooMuchMemoryIsNotRun) {
  const ReducedSize size = {.image = 64, .batch = 200000};
  const train::TrainJob job = reduced_job(*tables_, row("oneflow", "resnet50", 1, 1), size);
  Json described;
  add_run(job, size, described);
  EXPECT_THAT(described["run_note"].get<std::string>(), HasSubstr("needs "));
}

}  // namespace
}  // namespace millrace::bench
