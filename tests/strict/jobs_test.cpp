// Whole training jobs on the strict backend: whenever its queues run, losses, scores, weights and
// the optimizer's state have the bits that they have on this processor.
#include <gtest/gtest.h>

#include <map>

#include "graph/builder.h"
#include "placed_job.h"
#include "support.h"
#include "train/trainer.h"

namespace millrace {
namespace {

constexpr train::BatchShape kShape = {
    .batch = 8, .channels = 3, .height = 8, .width = 8, .classes = 6};
constexpr int64_t kSteps = 4;

graph::Graph network() {
  graph::Builder net;
  graph::Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  x = net.convolution(x, "conv1", {.channels = 16, .kernel = 3, .padding = 1});
  x = net.max_pool(net.relu(net.batch_norm(x, "bn1")), {});
  x = net.relu(net.convolution(x, "conv2", {.channels = 16, .kernel = 3, .padding = 1}));
  x = net.dropout(net.flatten(net.max_pool(x, {})), 0.3);
  x = net.relu(net.linear(x, "fc1", {.features = 24}));
  net.classify(net.linear(x, "fc2", {.features = kShape.classes}));
  return net.take();
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> scores;
  std::map<std::string, std::string> files;  // weights and states

  bool operator==(const Outcome&) const = default;
};

class StrictJobs : public train::DirectoryTest,
                   public ::testing::WithParamInterface<backend::BackendSettings> {
 protected:
  StrictJobs() {
    work_.network = network();
    work_.training = [this](train::FeedPosition start) {
      return train::make_memory_feed(data_, kShape, 1, start);
    };
    work_.evaluation = [this] { return train::make_memory_evaluation_feed(data_, kShape); };
  }

  static train::TrainJob job(
      const std::string& placement, int64_t micro_batches = 1,
      parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush) {
    train::TrainJob made = train::placed_job(placement, micro_batches, kSteps);
    made.plan.schedule = schedule;
    made.seed = 3;
    return made;
  }

  Outcome run(train::TrainJob job, const std::string& name) {
    job.checkpoint = directory_ / name;
    train::Recorder recorder;
    const train::TrainResult result = job.model.empty() ? train::run_training(job, work_, recorder)
                                                        : train::run_training(job, recorder);
    Outcome outcome;
    outcome.losses = result.losses;
    if (result.evaluation) {
      for (const train::Measured& one : result.evaluation->figures)
        outcome.scores.push_back(one.value);
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(job.checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      const std::string path = entry.path().lexically_relative(job.checkpoint).string();
      outcome.files[path] = read_text(entry.path());
    }
    EXPECT_FALSE(outcome.files.empty());
    return outcome;
  }

  void expect_same(const train::TrainJob& job) {
    const Outcome expected = run(job, std::to_string(runs_++));
    train::TrainJob strict = job;
    strict.backend = GetParam();
    const Outcome found = run(strict, std::to_string(runs_++));
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.scores, expected.scores);
    ASSERT_EQ(found.files.size(), expected.files.size());
    for (const auto& [path, bytes] : expected.files) {
      EXPECT_TRUE(found.files.at(path) == bytes) << path << " differs";
    }
  }

  std::shared_ptr<const train::MemoryData> data_ = train::random_images(kShape, 40);
  train::Workload work_;
  int runs_ = 0;
};

TEST_P(StrictJobs, OneDevice) { expect_same(job("0:0")); }
TEST_P(StrictJobs, Accumulated) { expect_same(job("0:0", 2)); }

TEST_P(StrictJobs, DataParallel) {
  train::TrainJob many = job("0:0-1");
  many.plan.sharding.synchronise_batch_norm = true;
  expect_same(many);
}

TEST_P(StrictJobs, SharedOptimizer) {
  train::TrainJob many = job("0:0-1");
  many.plan.share_optimizer = true;
  many.optimizer.name = "adamw";
  many.optimizer.clip_norm = 1;
  expect_same(many);
}

TEST_P(StrictJobs, SixteenBitsBetweenThem) {
  train::TrainJob many = job("0:0-1.0:2", 2);
  many.precision.communication = graph::DataType::f16;
  expect_same(many);
}

TEST_P(StrictJobs, HybridParallel) {
  train::TrainJob many = job("0:0-1");
  many.plan.sharding.parallelism = parallel::Parallelism::hybrid;
  expect_same(many);
}

TEST_P(StrictJobs, Pipeline) { expect_same(job("0:0.0:1", 4)); }
TEST_P(StrictJobs, StagesInTurn) {
  expect_same(job("0:0.0:1.0:0.0:1", 4, parallel::ScheduleKind::interleaved));
}
// Interleaved stages of two devices each, statistics of all, one norm of all gradients, and 16 bits
// with a scale that changes.
TEST_P(StrictJobs, AllAtOnce) {
  train::TrainJob all = job("0:0-1.0:2-3.0:0-1.0:2-3", 2, parallel::ScheduleKind::interleaved);
  all.plan.sharding.synchronise_batch_norm = true;
  all.optimizer.clip_norm = 0.5;
  all.precision.type = graph::DataType::bf16;
  all.precision.arithmetic = passes::PrecisionSettings::Arithmetic::storage;
  all.loss_scale.dynamic = true;
  all.loss_scale.scale = train::kFirstLossScale;
  all.inject_overflow = {{.step = 2, .device = 1}};
  expect_same(all);
}

TEST_P(StrictJobs, WidePipeline) {
  expect_same(job("0:0-1.0:2", 2, parallel::ScheduleKind::zero_bubble));
}
TEST_P(StrictJobs, StagesThatShareADevice) { expect_same(job("0:0.0:1.0:0", 2)); }
TEST_P(StrictJobs, LateWeights) {
  expect_same(job("0:0.0:1.0:2", 1, parallel::ScheduleKind::one_f_one_b));
}
TEST_P(StrictJobs, TwoVersions) { expect_same(job("0:0.0:1", 2, parallel::ScheduleKind::two_bw)); }

TEST_P(StrictJobs, ReplicasInTurn) {
  train::TrainJob turns = job("0:0-1.0:2", 1, parallel::ScheduleKind::one_f_one_b);
  turns.plan.round_robin = true;
  expect_same(turns);
}

TEST_P(StrictJobs, Overflow) {
  for (const char* placement : {"0:0-1", "0:0.0:1"}) {
    train::TrainJob scaled = job(placement, placement[3] == '-' ? 1 : 2);
    scaled.loss_scale.dynamic = true;
    scaled.loss_scale.scale = train::kFirstLossScale;
    scaled.inject_overflow = {{.step = 2, .device = 1}};
    expect_same(scaled);
  }
}

TEST_P(StrictJobs, MarginHead) {
  for (const char* placement : {"0:0-1", "0:0.0:1-2"}) {
    train::TrainJob faces = job(placement);
    faces.model = "mobilefacenet";
    faces.options = models::default_options(faces.model);
    faces.options.batch = 4;
    faces.options.image = 16;
    faces.options.classes = 40;
    faces.options.head = graph::MarginHeadOptions{};
    faces.options.head->addend = 0.5;
    faces.options.head->parallel = graph::HeadParallel::pfc;
    faces.options.head->sample_rate = 0.4;
    faces.steps = 2;
    expect_same(faces);
    faces.optimizer.clip_norm = 0.5;
    faces.precision.type = graph::DataType::bf16;
    faces.precision.arithmetic = passes::PrecisionSettings::Arithmetic::storage;
    faces.loss_scale.dynamic = true;
    expect_same(faces);
  }
}

TEST_P(StrictJobs, ResumedCheckpoint) {
  const Outcome expected = run(job("0:0.0:1", 2), "whole");
  train::TrainJob strict = job("0:0.0:1", 2);
  strict.backend = GetParam();
  strict.steps = 2;
  run(strict, "halves");
  strict.steps = kSteps;
  strict.resume = true;
  const Outcome resumed = run(strict, "halves");
  for (const auto& [path, bytes] : expected.files) {
    EXPECT_TRUE(resumed.files.contains(path) && resumed.files.at(path) == bytes) << path;
  }
}

// The order is found on the way, so that bits may differ; it has to end well.
TEST_P(StrictJobs, OrderFoundOnTheWay) {
  train::TrainJob free = job("0:0.0:1", 1, parallel::ScheduleKind::ssp);
  free.plan.static_scheduling = false;
  free.backend = GetParam();
  const Outcome found = run(free, "free");
  EXPECT_EQ(found.losses.size(), static_cast<size_t>(kSteps));
}

std::vector<backend::BackendSettings> orders() {
  using Order = backend::BackendSettings::Order;
  constexpr auto kStrict = backend::BackendSettings::Kind::strict;
  std::vector<backend::BackendSettings> all = {{kStrict, Order::lazy, 0},
                                               {kStrict, Order::eager, 0}};
  for (uint64_t seed = 1; seed <= 8; ++seed) all.push_back({kStrict, Order::random, seed});
  return all;
}

std::string name(const ::testing::TestParamInfo<backend::BackendSettings>& info) {
  constexpr const char* kOrders[] = {"eager", "lazy", "random"};
  return kOrders[static_cast<size_t>(info.param.order)] + std::to_string(info.param.seed);
}

INSTANTIATE_TEST_SUITE_P(Orders, StrictJobs, ::testing::ValuesIn(orders()), name);

}  // namespace
}  // namespace millrace
