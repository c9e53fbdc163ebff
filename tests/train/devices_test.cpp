// Jobs on many devices are the jobs of one: losses, weights, evaluation, checkpoints.
#include "devices.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "runtime/trace_file.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

TEST_F(DevicesTest, DataModelHybridAndPipelinesAreOneDevice) {
  const Outcome one = run(job("0:0"), "one");
  EXPECT_EQ(one.result.schedule, "single");
  std::vector<std::pair<std::string, TrainJob>> jobs = {
      {"data", job("0:0-2")},         {"shared", job("0:0-1")},       {"model", job("0:0-1")},
      {"hybrid", job("0:0-1")},       {"accumulated", job("0:0", 3)}, {"flush", job("0:0.0:1", 3)},
      {"bubble", job("0:0-1.0:2", 2)}};
  jobs[1].second.plan.share_optimizer = true;
  jobs[2].second.plan.sharding.parallelism = parallel::Parallelism::model;
  jobs[3].second.plan.sharding.parallelism = parallel::Parallelism::hybrid;
  jobs[6].second.plan.schedule = parallel::ScheduleKind::zero_bubble;
  for (const auto& [name, many] : jobs) {
    SCOPED_TRACE(name);
    const Outcome outcome = run(many, name);
    expect_same(outcome, one);
    size_t devices = 0;
    for (const parallel::Placement& stage : many.plan.stages) devices += stage.devices.size();
    ASSERT_EQ(outcome.result.devices.size(), devices);
    for (const DeviceReport& device : outcome.result.devices) {
      EXPECT_EQ(device.breakdown.total(), device.arena_bytes) << device.id;
    }
  }
}

// The images are read through a view of them, forward and backward.
TEST_F(DevicesTest, LinearLayersOnTheImagesThemselves) {
  graph::Builder net;
  graph::Value x =
      net.flatten(net.image(kShape.batch, kShape.channels, kShape.height, kShape.width));
  x = net.relu(net.linear(x, "fc1", {.features = 40}));
  net.classify(net.linear(x, "fc2", {.features = kShape.classes}));
  work_.network = net.take();
  const Outcome one = run(job("0:0"), "one");
  expect_same(run(job("0:0", 3), "accumulated"), one);
  expect_same(run(job("0:0.0:1", 3), "stages"), one);
}

// A last round that does not reach every replica ends like any other.
TEST_F(DevicesTest, ReplicasTakeTurnsForAnyNumberOfSteps) {
  TrainJob turns = job("0:0-2.0:3");
  turns.plan.schedule = parallel::ScheduleKind::one_f_one_b;
  turns.plan.round_robin = true;
  turns.steps = 6;
  const std::vector<double> losses = run(turns, "six").result.losses;
  ASSERT_EQ(losses.size(), 6u);
  for (const int64_t steps : {1, 2, 4, 5}) {
    turns.steps = steps;
    const std::vector<double> fewer = run(turns, "turns" + std::to_string(steps)).result.losses;
    EXPECT_EQ(fewer, std::vector<double>(losses.begin(), losses.begin() + steps));
  }
}

TEST_F(DevicesTest, SamePlanSameBits) {
  for (const char* placement : {"0:0-2", "0:0.0:1"}) {
    const Outcome first = run(job(placement), "first");
    const Outcome second = run(job(placement), "second");
    EXPECT_EQ(first.result.losses, second.result.losses) << placement;
    EXPECT_EQ(distance(first.weights, second.weights), 0) << placement;
  }
}

// Gradients and activations between stages are rounded, close to float32 and the same every time;
// sharing the optimizer's state changes nothing. Rounded activations put a few values on the other
// side of a ReLU or of a maximum, each with its whole gradient, so stages differ by more than what
// was rounded.
TEST_F(DevicesTest, SixteenBitsBetweenDevices) {
  work_.evaluation = {};  // which sends float32
  const Outcome one = run(job("0:0"), "one");
  const std::map<graph::DataType, std::vector<const char*>> placements = {
      {graph::DataType::f16, {"0:0-1", "0:0-3", "0:0.0:1"}},
      {graph::DataType::bf16, {"0:0-2", "0:0-1.0:2"}}};
  for (const auto& [wire, list] : placements) {
    for (const char* placement : list) {
      SCOPED_TRACE(placement);
      const bool stages = std::string_view(placement).find('.') != std::string_view::npos;
      const double tolerance = stages ? 6e-2 : wire == graph::DataType::f16 ? 2e-3 : 2e-2;
      TrainJob narrowed = job(placement, stages ? 3 : 1);
      const Outcome full = run(narrowed, "full");
      narrowed.precision.communication = wire;
      const Outcome first = run(narrowed, "first");
      const Outcome second = run(narrowed, "second");
      EXPECT_EQ(first.result.losses, second.result.losses);
      EXPECT_EQ(distance(first.weights, second.weights), 0);
      EXPECT_LT(distance(one.weights, first.weights), tolerance);
      EXPECT_GT(distance(full.weights, first.weights), 1e-6) << "nothing was rounded";
      narrowed.plan.share_optimizer = true;
      const Outcome shared = run(narrowed, "shared");
      EXPECT_EQ(distance(first.weights, shared.weights), 0);
      const auto bytes = [](const Outcome& outcome) {
        int64_t sum = 0;
        for (const DeviceReport& device : outcome.result.devices) {
          EXPECT_EQ(device.breakdown.total(), device.arena_bytes) << device.id;
          sum += device.communication.total().bytes;
        }
        return static_cast<double>(sum);
      };
      EXPECT_NEAR(bytes(first) / bytes(full), 0.5, 0.02);
    }
  }
}

TEST_F(DevicesTest, GoesOnWithAnotherNumberOfDevices) {
  const Outcome one = run(job("0:0"), "one");
  TrainJob begin = job("0:0-2");
  begin.plan.share_optimizer = true;
  begin.checkpoint = directory_ / "run";
  begin.steps = 2;

  run(begin, "begin");
  TrainJob rest = job("0:0.0:1", 3);
  rest.checkpoint = directory_ / "run";
  rest.resume = true;
  const Outcome many = run(rest, "rest");
  EXPECT_EQ(many.result.first_step, 2);
  EXPECT_LT(distance(one.weights, many.weights), 1e-5);
}

// A step's loss is known before its backward pass; its time is over when the pipeline is empty.
TEST_F(DevicesTest, StepsLastAsLongAsTheDevicesWork) {
  for (const parallel::ScheduleKind kind :
       {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b}) {
    TrainJob pipeline = job("0:0.0:1", kind == parallel::ScheduleKind::gpipe ? 3 : 1);
    pipeline.plan.schedule = kind;
    pipeline.trace = directory_ / "trace.json";
    const Outcome outcome = run(pipeline, "traced");
    const runtime::TraceLog log = runtime::parse_trace(read_text(pipeline.trace), "trace");
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (const runtime::TraceEvent& event : log.events) {
      if (event.category > runtime::TraceCategory::update || event.name == "evaluation") continue;
      begin = std::min(begin, event.begin);
      end = std::max(end, event.end);
    }
    const auto& seconds = outcome.result.seconds;
    EXPECT_GT(std::accumulate(seconds.begin(), seconds.end(), 0.0),
              0.9e-9 * static_cast<double>(end - begin))
        << parallel::name_of(kind);
  }
}

TEST_F(DevicesTest, SaysWhatDoesNotFit) {
  TrainJob uneven = job("0:0", 5);
  EXPECT_THAT(input_error_of([&] { run(uneven, "x"); }), HasSubstr("‹microbatches› is 5"));
  TrainJob elsewhere = job("0:0,1:0");
  EXPECT_THAT(input_error_of([&] { run(elsewhere, "x"); }), HasSubstr("mpirun -n 2"));
  TrainJob shared = job("0:0.0:0", 2);
  const auto stages = run(shared, "x").result.devices;
  ASSERT_EQ(stages.size(), 2u);
  shared.device_memory = std::max(stages[0].arena_bytes, stages[1].arena_bytes);
  EXPECT_THAT(input_error_of([&] { run(shared, "x"); }), HasSubstr("The stages on device 0:0"));
  TrainJob crowded = job("0:0-11");
  crowded.threads = 64;
  crowded.oversubscribe = false;
  EXPECT_THAT(input_error_of([&] { run(crowded, "x"); }), HasSubstr("‹oversubscribe›"));
}

}  // namespace
}  // namespace millrace::train
