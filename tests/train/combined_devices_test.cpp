// Ways to divide a job, put together: still the numbers of one device on the same batch.
#include <gmock/gmock.h>

#include "devices.h"
#include "train/checkpoint.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

using CombinedDevicesTest = DevicesTest;

TrainJob with(TrainJob job, parallel::Parallelism parallelism) {
  job.plan.sharding.parallelism = parallelism;
  return job;
}

TrainJob with(TrainJob job, parallel::ScheduleKind schedule) {
  job.plan.schedule = schedule;
  return job;
}

TrainJob in_turn(TrainJob job) {
  job.plan.round_robin = true;
  return job;
}

TrainJob sharing_state(TrainJob job) {
  job.plan.share_optimizer = true;
  return job;
}

std::vector<float> values_of(const data::SafetensorsFile& file, const std::string& name) {
  const data::SafetensorsEntry& entry = file.at(name);
  const auto* values = reinterpret_cast<const float*>(entry.data.data());
  return {values, values + entry.data.size() / sizeof(float)};
}

// The loss over split classes is the mean over a step, not over a micro-batch.
TEST_F(CombinedDevicesTest, SplitLayersWithMicroBatches) {
  const Outcome one = run(job("0:0"), "one");
  for (const parallel::Parallelism parallelism :
       {parallel::Parallelism::model, parallel::Parallelism::hybrid}) {
    for (const int64_t micro_batches : {2, 3}) {
      SCOPED_TRACE(parallel::name_of(parallelism));
      expect_same(run(with(job("0:0-1", micro_batches), parallelism), "many"), one);
    }
  }
  TrainJob by_inputs = with(job("0:0-1", 2), parallel::Parallelism::hybrid);
  by_inputs.plan.sharding.layers["fc2"] = parallel::LayerSharding::split_input;
  expect_same(run(by_inputs, "by_inputs"), one);
}

// Whole micro-batches for each device of one stage, more or fewer of them than devices.
TEST_F(CombinedDevicesTest, TurnsWithinOneStage) {
  const Outcome one = run(job("0:0"), "one");
  for (const int64_t micro_batches : {1, 2, 3, 4}) {
    SCOPED_TRACE(micro_batches);
    expect_same(run(in_turn(job("0:0-1", micro_batches)), "two"), one);
    expect_same(run(in_turn(job("0:0-2", micro_batches)), "three"), one);
  }
}

// Stages of any width, several on one device, and last batches that are not full.
TEST_F(CombinedDevicesTest, StagesOfUnequalWidth) {
  const Outcome one = run(job("0:0"), "one");
  for (const char* placement :
       {"0:0-1.0:2", "0:0.0:1-2", "0:0.0:0", "0:0.0:1.0:0", "0:0-1.0:0-1"}) {
    SCOPED_TRACE(placement);
    expect_same(run(job(placement, 2), "split"), one);
    expect_same(run(in_turn(job(placement, 3)), "turns"), one);
  }
}

// The last stage may have the loss alone.
TEST_F(CombinedDevicesTest, CutBehindTheLastLayer) {
  const Outcome one = run(job("0:0"), "one");
  for (const char* placement : {"0:0.0:1", "0:0-1.0:2", "0:0.0:1-2"}) {
    for (const parallel::ScheduleKind schedule :
         {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::zero_bubble}) {
      SCOPED_TRACE(placement);
      TrainJob cut = with(job(placement, 2), schedule);
      cut.plan.cut_after = {"fc2"};
      expect_same(run(cut, "cut"), one);
    }
  }
}

// One norm of all gradients, however they are divided.
TEST_F(CombinedDevicesTest, ClipsByTheNormOfTheWholeModel) {
  const auto clipped = [](TrainJob job) {
    job.optimizer.clip_norm = 0.1;
    return job;
  };
  const Outcome free = run(job("0:0"), "free");
  const Outcome one = run(clipped(job("0:0")), "one");
  ASSERT_GT(distance(free.weights, one.weights), 1e-3);
  const std::vector<TrainJob> jobs = {
      job("0:0.0:1"),
      job("0:0.0:1", 3),
      job("0:0.0:0", 2),
      with(job("0:0-1.0:2", 2), parallel::ScheduleKind::zero_bubble),
      with(job("0:0.0:1.0:0.0:1", 4), parallel::ScheduleKind::interleaved),
      with(in_turn(job("0:0-1.0:2", 3)), parallel::ScheduleKind::gpipe),
      sharing_state(job("0:0-1.0:2-3", 2)),
      with(job("0:0-1", 2), parallel::Parallelism::model),
      with(job("0:0-1"), parallel::Parallelism::hybrid),
      sharing_state(job("0:0-2")),
  };
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(run(clipped(jobs[i]), "many"), one);
    TrainJob scaled = clipped(jobs[i]);
    scaled.loss_scale.scale = 1024;
    expect_same(run(scaled, "scaled"), one);
  }
  TrainJob apart = with(clipped(job("0:0.0:1")), parallel::ScheduleKind::one_f_one_b);
  EXPECT_THAT(input_error_of([&] { run(apart, "x"); }), HasSubstr("‹clip_norm›"));
}

// The norms of a layer are those of the whole layer.
TEST_F(CombinedDevicesTest, StepsAreFittedToTheNormsOfWholeLayers) {
  struct Case {
    const char* optimizer;
    double rate;
    double clip;
  };
  const auto fitted = [](TrainJob job, const Case& by) {
    job.optimizer.name = by.optimizer;
    job.optimizer.trust = 0.05;
    job.optimizer.epsilon = 1e-4;
    job.optimizer.clip_norm = by.clip;
    job.learning_rate.base = by.rate;
    return job;
  };
  for (const Case& by : std::vector<Case>{
           {"lars", 0.5, 0}, {"lars", 0.5, 0.1}, {"lamb", 0.02, 0}, {"lamb", 0.02, 0.1}}) {
    SCOPED_TRACE(by.optimizer);
    const Outcome one = run(fitted(job("0:0"), by), "one");
    const std::vector<TrainJob> jobs = {
        with(job("0:0-1"), parallel::Parallelism::model),
        with(job("0:0-2", 2), parallel::Parallelism::model),
        with(job("0:0-1", 3), parallel::Parallelism::hybrid),
        sharing_state(with(job("0:0-1"), parallel::Parallelism::hybrid)),
        sharing_state(job("0:0-2")),
        job("0:0-1.0:2", 2),
    };
    for (size_t i = 0; i < jobs.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(run(fitted(jobs[i], by), "many"), one);
    }
  }
}

// Two replicas in turn make one update of two steps; each is corrected by the number of updates.
TEST_F(CombinedDevicesTest, AdamwCountsTheUpdatesOfEachStage) {
  TrainJob turns = in_turn(with(job("0:0-1.0:2"), parallel::ScheduleKind::one_f_one_b));
  turns.optimizer.name = "adamw";
  turns.optimizer.weight_decay = 0;
  turns.learning_rate.base = 0.01;
  turns.plan.cut_after = {"conv2"};
  turns.checkpoint = directory_ / "run";
  turns.checkpoint_every.steps = 2;
  turns.keep = 10;
  run(turns, "turns");
  const auto path = [&](int step, std::string_view file) {
    return turns.checkpoint / checkpoint_name(step) / file;
  };
  const passes::OptimizerSettings& settings = turns.optimizer;
  for (int update = 2; update <= 3; ++update) {
    const data::SafetensorsFile before(path(2 * update - 2, kWeightsFile));
    const data::SafetensorsFile after(path(2 * update, kWeightsFile));
    const data::SafetensorsFile state(path(2 * update, kOptimizerFile));
    const std::string name = "conv1.weight";
    const auto w = values_of(before, name), next = values_of(after, name);
    const auto first = values_of(state, name + ".first_moment");
    const auto second = values_of(state, name + ".second_moment");
    for (size_t i = 0; i < w.size(); i += 7) {
      const double mean = first[i] / (1 - std::pow(settings.beta1, update));
      const double square = second[i] / (1 - std::pow(settings.beta2, update));
      const double expected = w[i] - 0.01 * mean / (std::sqrt(square) + settings.epsilon);
      EXPECT_NEAR(next[i], expected, 2e-6) << update << ", " << i;
    }
    EXPECT_EQ(values_of(state, name + ".updates"), std::vector<float>{static_cast<float>(update)});
    EXPECT_EQ(values_of(state, "fc2.weight.updates"),
              std::vector<float>{static_cast<float>(2 * update)});
  }
}

}  // namespace
}  // namespace millrace::train
