// Jobs with a loss scale: the same bits as without, and nothing changes where gradients overflow.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/optimizers.h"
#include "placed_job.h"
#include "support.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BatchShape kShape = {.batch = 12, .channels = 3, .height = 8, .width = 8, .classes = 5};

graph::Graph network() {
  graph::Builder net;
  graph::Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  x = net.convolution(x, "conv1", {.channels = 8, .kernel = 3, .padding = 1, .bias = false});
  x = net.max_pool(net.relu(net.batch_norm(x, "bn1")), {});
  x = net.relu(net.convolution(x, "conv2", {.channels = 12, .kernel = 3, .padding = 1}));
  x = net.relu(net.linear(net.flatten(net.max_pool(x, {})), "fc1", {.features = 20}));
  net.classify(net.linear(x, "fc2", {.features = kShape.classes}));
  return net.take();
}

// Names of the tensors whose bytes differ; they must be the same tensors.
std::vector<std::string> differences(const std::filesystem::path& a,
                                     const std::filesystem::path& b) {
  const data::SafetensorsFile first(a);
  const data::SafetensorsFile second(b);
  std::vector<std::string> names;
  EXPECT_EQ(first.entries().size(), second.entries().size());
  EXPECT_FALSE(first.entries().empty());
  for (const data::SafetensorsEntry& entry : first.entries()) {
    const auto other = second.at(entry.name).data;
    const bool same = entry.data.size() == other.size() &&
                      std::memcmp(entry.data.data(), other.data(), other.size()) == 0;
    if (!same) names.push_back(entry.name);
  }
  return names;
}

bool is_statistic(const std::string& name) {
  return name.find("running") != std::string::npos || name.find("batches") != std::string::npos;
}

class OverflowTest : public DirectoryTest {
 protected:
  OverflowTest() {
    work_.network = network();
    work_.training = [this](FeedPosition start) {
      return make_memory_feed(data_, kShape, 1, start);
    };
  }

  static TrainJob job(const std::string& placement, int64_t micro_batches = 1,
                      parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush) {
    TrainJob job = placed_job(placement, micro_batches, 5);
    job.plan.schedule = schedule;
    return job;
  }

  static TrainJob scaled(TrainJob job) {
    job.loss_scale.dynamic = true;
    job.loss_scale.scale = kFirstLossScale;
    return job;
  }

  static std::vector<std::pair<std::string, TrainJob>> plans() {
    std::vector<std::pair<std::string, TrainJob>> jobs = {
        {"one", job("0:0")},
        {"two", job("0:0-1")},
        {"three", job("0:0-2")},
        {"shared", job("0:0-1")},
        {"model", job("0:0-1")},
        {"accumulated", job("0:0", 3)},
        {"flush", job("0:0.0:1", 3)},
        {"flush of one", job("0:0.0:1", 1)},
        {"gpipe", job("0:0.0:1.0:2", 2, parallel::ScheduleKind::gpipe)},
        {"bubble", job("0:0-1.0:2", 2, parallel::ScheduleKind::zero_bubble)},
        {"one device for both", job("0:0.0:0", 2)},
        {"interleaved", job("0:0.0:1.0:0.0:1", 2, parallel::ScheduleKind::interleaved)},
    };
    jobs[3].second.plan.share_optimizer = true;
    jobs[4].second.plan.sharding.parallelism = parallel::Parallelism::model;
    return jobs;
  }

  static std::vector<std::pair<std::string, TrainJob>> asynchronous_plans() {
    std::vector<std::pair<std::string, TrainJob>> jobs = {
        {"1f1b", job("0:0.0:1", 1, parallel::ScheduleKind::one_f_one_b)},
        {"ssp", job("0:0.0:1.0:2", 1, parallel::ScheduleKind::ssp)},
        {"2bw", job("0:0.0:1", 2, parallel::ScheduleKind::two_bw)},
        {"1f1b of two", job("0:0-1.0:2", 1, parallel::ScheduleKind::one_f_one_b)},
    };
    for (auto& [name, job] : jobs) job.plan.static_scheduling = true;
    return jobs;
  }

  std::filesystem::path run(TrainJob job, const std::string& name) {
    job.save_weights = directory_ / name;
    recorder_ = {};
    result_ = run_training(job, work_, recorder_);
    return job.save_weights;
  }

  std::vector<int64_t> skipped_steps() const {
    std::vector<int64_t> steps;
    for (const StepReport& report : recorder_.steps) {
      if (report.skipped) steps.push_back(report.step);
    }
    return steps;
  }

  Recorder recorder_;
  TrainResult result_;
  std::shared_ptr<const MemoryData> data_ = random_images(kShape, 40);
  Workload work_;
};

TEST_F(OverflowTest, APowerOfTwoChangesNoBit) {
  for (const auto& [name, plain] : plans()) {
    SCOPED_TRACE(name);
    const auto without = run(plain, "without");
    const auto losses = result_.losses;
    const auto with = run(scaled(plain), "with");
    EXPECT_THAT(differences(without, with), ElementsAre());
    EXPECT_EQ(result_.losses, losses);
    EXPECT_EQ(result_.skipped_steps, 0);
  }
  for (const auto& [name, plain] : asynchronous_plans()) {
    SCOPED_TRACE(name);
    TrainJob fixed = plain;
    fixed.loss_scale.scale = 4096;
    EXPECT_THAT(differences(run(plain, "without"), run(fixed, "with")), ElementsAre());
  }
}

TEST_F(OverflowTest, OrOfAnyOptimizer) {
  for (const graph::OptimizerDefinition& optimizer : graph::optimizers()) {
    if (!optimizer.listed) continue;
    const std::string name(optimizer.name);
    for (const double clip : {0.0, 0.5}) {
      TrainJob plain = job("0:0-1");
      plain.optimizer.name = name;
      plain.optimizer.clip_norm = clip;
      EXPECT_THAT(differences(run(plain, "without"), run(scaled(plain), "with")), ElementsAre())
          << name << " " << clip;
    }
  }
}

TEST_F(OverflowTest, OnOneDeviceIsTheSameSkipOnAllAndChangesNothing) {
  for (const auto& [name, plain] : plans()) {
    const auto devices = static_cast<int>(plain.plan.devices().size());
    for (int device = 0; device < devices; ++device) {
      SCOPED_TRACE(name + ", device " + std::to_string(device));
      TrainJob before = scaled(plain);
      before.steps = 2;
      before.optimizer.name = "adamw";
      before.learning_rate.base = 0.001;
      TrainJob after = before;
      after.steps = 3;
      after.inject_overflow = {{3, device}};
      const auto start = run(before, "before");
      for (const std::string& different : differences(start, run(after, "after"))) {
        EXPECT_TRUE(is_statistic(different)) << different;
      }
      EXPECT_THAT(skipped_steps(), ElementsAre(3));
      EXPECT_EQ(recorder_.steps.back().loss_scale, 65536);
      EXPECT_THAT(recorder_.steps.back().overflow, HasSubstr("the gradient of '"));
      if (plain.plan.stages.size() == 1 && name != "model") {
        EXPECT_THAT(recorder_.steps.back().overflow,
                    HasSubstr("on device 0:" + std::to_string(device)));
      }
      EXPECT_EQ(result_.loss_scale.scale, 32768);
      EXPECT_TRUE(std::isfinite(result_.losses.back()));
    }
  }
}

// Momentum and Adam's count go on as if the step had not been.
TEST_F(OverflowTest, LeavesNoTrace) {
  for (const std::string placement : {"0:0", "0:0-1", "0:0.0:1"}) {
    TrainJob whole = scaled(job(placement));
    whole.optimizer.name = "adamw";
    whole.optimizer.clip_norm = 1;
    whole.learning_rate.base = 0.001;
    whole.steps = 1;
    whole.inject_overflow = {{1, 0}};
    // One sample again and again, so that skipping a step does not skip data.
    auto data = std::make_shared<MemoryData>(*random_images(kShape, 40));
    for (size_t i = 0; i < data->labels.size(); ++i) {
      data->labels[i] = 0;
      std::copy_n(data->images.begin(), 192,
                  data->images.begin() + static_cast<ptrdiff_t>(192 * i));
    }
    data_ = data;
    whole.steps = 4;
    TrainJob shorter = whole;
    shorter.steps = 3;
    shorter.inject_overflow.clear();
    for (const std::string& name : differences(run(whole, "whole"), run(shorter, "shorter"))) {
      EXPECT_TRUE(is_statistic(name)) << placement << " " << name;
    }
  }
}

TEST_F(OverflowTest, AJobGoesOnExactlyAfterASkip) {
  std::vector<std::pair<std::string, TrainJob>> jobs = plans();
  for (const auto& other : asynchronous_plans()) jobs.push_back(other);
  for (const auto& [name, plain] : jobs) {
    SCOPED_TRACE(name);
    TrainJob whole = scaled(plain);
    whole.optimizer.name = "adamw";
    whole.learning_rate.base = 0.001;
    whole.loss_scale.window = 2;
    whole.steps = 6;
    whole.inject_overflow = {{2, 0}, {5, 0}};
    whole.checkpoint = directory_ / ("whole " + name);
    whole.checkpoint_every.steps = 3;
    const auto expected = run(whole, "whole");
    const LossScaleState state = result_.loss_scale;
    EXPECT_THAT(skipped_steps(), ElementsAre(2, 5));
    TrainJob part = whole;
    part.checkpoint = directory_ / ("part " + name);
    part.steps = 3;
    run(part, "part");
    part.steps = 6;
    part.resume = true;
    EXPECT_THAT(differences(expected, run(part, "resumed")), ElementsAre());
    EXPECT_EQ(result_.loss_scale, state);
    EXPECT_THAT(skipped_steps(), ElementsAre(5));
  }
}

// Each stage skips its own update of the mini-batch; the stages behind it, whose gradients were
// good, have made theirs.
TEST_F(OverflowTest, InAnAsynchronousPipelineStopsAtTheStageAndThoseBeforeIt) {
  TrainJob before = scaled(job("0:0.0:1.0:2", 1, parallel::ScheduleKind::one_f_one_b));
  before.steps = 1;
  const auto start = run(before, "before");
  const std::vector<std::vector<std::string>> stages = [&] {
    std::vector<std::vector<std::string>> names(3);
    for (int stage = 0; stage < 3; ++stage) {
      TrainJob after = before;
      after.steps = 2;
      after.inject_overflow = {{2, stage}};
      names[static_cast<size_t>(stage)] =
          differences(start, run(after, "after " + std::to_string(stage)));
      EXPECT_THAT(skipped_steps(), ElementsAre(2));
      std::erase_if(names[static_cast<size_t>(stage)], is_statistic);
    }
    return names;
  }();
  EXPECT_THAT(stages[2], ElementsAre());  // infinity goes back through all stages
  EXPECT_FALSE(stages[0].empty());
  EXPECT_LT(stages[1].size(), stages[0].size());
}

// Images so dark that the gradients of the only layer are below all that fp16 holds.
TEST_F(OverflowTest, GradientsThatVanishInSixteenBitsSurviveWithAScale) {
  graph::Builder net;
  graph::Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  net.classify(net.linear(net.flatten(x), "fc", {.features = kShape.classes, .bias = false}));
  work_.network = net.take();
  auto dark = std::make_shared<MemoryData>(*random_images(kShape, 40));
  for (float& value : dark->images) value *= 1e-8f;
  data_ = dark;
  TrainJob plain = job("0:0-1");
  plain.optimizer.weight_decay = 0;
  plain.learning_rate.base = 1e6;
  plain.steps = 3;
  const auto weights = [&](const TrainJob& trained) {
    const data::SafetensorsFile file(run(trained, "weights"));
    const auto data = file.at("fc.weight").data;
    std::vector<float> values(data.size() / sizeof(float));
    std::memcpy(values.data(), data.data(), data.size());
    return values;
  };
  TrainJob still = plain;
  still.learning_rate.base = 0;
  const auto start = weights(still);
  const auto exact = weights(plain);
  plain.precision.communication = graph::DataType::f16;
  const auto lost = weights(plain);
  const auto kept = weights(scaled(plain));
  EXPECT_EQ(lost, start);
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(double{exact[i]} - start[i]));
    worst = std::max(worst, std::abs(double{kept[i]} - exact[i]));
  }
  EXPECT_GT(largest, 1e-3);
  EXPECT_LT(worst, 2e-3 * largest);
}

TEST_F(OverflowTest, AtTheFloorEndsTheJobAndNamesLayerAndTensor) {
  for (const std::string placement : {"0:0", "0:0-1", "0:0.0:1"}) {
    TrainJob stuck = scaled(job(placement));
    stuck.loss_scale.patience = 3;
    stuck.loss_scale.least = 32768;
    stuck.steps = 20;
    for (int64_t step = 2; step <= 20; ++step) stuck.inject_overflow.push_back({step, 0});
    std::string sentence;
    try {
      run(stuck, "stuck");
    } catch (const JobError& error) {
      sentence = error.what();
    }
    EXPECT_THAT(sentence, HasSubstr("up to step 5")) << placement;
    EXPECT_THAT(sentence, HasSubstr("32768"));
    EXPECT_THAT(sentence, HasSubstr(placement == "0:0" ? "layer '" : "the gradient of"));
  }
}

TEST_F(OverflowTest, TheWatchOverFiniteValuesLetsASkipPass) {
  TrainJob watched = scaled(job("0:0"));
  watched.check_finite = true;
  watched.inject_overflow = {{2, 0}};
  run(watched, "watched");
  EXPECT_THAT(skipped_steps(), ElementsAre(2));
}

TEST_F(OverflowTest, FaultsNeedAScaleAndADevice) {
  TrainJob faulty = job("0:0");
  faulty.inject_overflow = {{1, 0}};
  EXPECT_THAT(input_error_of([&] { run(faulty, "x"); }), HasSubstr("‹loss_scale› dynamic"));
  faulty = scaled(faulty);
  faulty.inject_overflow = {{1, 1}};
  EXPECT_THAT(input_error_of([&] { run(faulty, "x"); }), HasSubstr("device 1"));
}

}  // namespace
}  // namespace millrace::train
