// Pipelines that end every step empty train as one device does that accumulates gradients.
#include "pipeline.h"

#include <gtest/gtest.h>

#include "../parallel/networks.h"
#include "models/models.h"

namespace millrace::testing {
namespace {

constexpr int kSteps = 3;

void expect_as_alone(const PipelineSpec& spec, int segments = 1, double tolerance = 1e-5) {
  std::string shape;
  for (const auto& stage : spec.devices) shape += std::to_string(stage.size()) + " ";
  SCOPED_TRACE(std::string(parallel::name_of(spec.schedule)) + " on " + shape);
  TestPipeline pipeline(spec);
  TestAlone alone(spec.network, spec.micro_batches, spec.optimizer);
  for (int i = 0; i < segments; ++i) pipeline.train();
  std::vector<double> losses;
  for (int64_t step = 0; step < segments * spec.steps; ++step) losses.push_back(alone.train(step));
  ASSERT_EQ(pipeline.losses().size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(pipeline.losses()[i], losses[i], tolerance * losses[i]) << "step " << i;
  }
  std::string where;
  EXPECT_LT(distance(pipeline.weights(), alone.weights(), &where), tolerance) << where;
}

constexpr parallel::ScheduleKind kSynchronous[] = {parallel::ScheduleKind::gpipe,
                                                   parallel::ScheduleKind::one_f_one_b_flush,
                                                   parallel::ScheduleKind::zero_bubble};

TEST(SynchronousPipeline, AlexnetLike) {
  for (parallel::ScheduleKind kind : kSynchronous) {
    expect_as_alone(spec_of(alexnet_like(12), {{0}, {1}}, kind, 3, kSteps));
    expect_as_alone(spec_of(alexnet_like(12), {{0, 1}, {2, 3, 4}}, kind, 2, kSteps));
    expect_as_alone(spec_of(alexnet_like(12), {{0}, {1, 2}, {3}}, kind, 4, kSteps));
  }
}

TEST(SynchronousPipeline, VggLike) {
  for (parallel::ScheduleKind kind : kSynchronous) {
    expect_as_alone(spec_of(vgg_like(8), {{0}, {1}}, kind, 4, kSteps));
    expect_as_alone(spec_of(vgg_like(14), {{0, 1, 2}, {3}}, kind, 2, kSteps));
    expect_as_alone(spec_of(vgg_like(16), {{0}, {1}, {2}, {3}}, kind, 8, kSteps));
  }
}

TEST(SynchronousPipeline, ResnetLikeWithSkips) {
  for (parallel::ScheduleKind kind : kSynchronous) {
    expect_as_alone(spec_of(resnet_like(12), {{0}, {1}}, kind, 3, kSteps));
    expect_as_alone(spec_of(resnet_like(20), {{0, 1}, {2}, {3, 4, 5}}, kind, 2, kSteps));
    expect_as_alone(spec_of(resnet_like(20), {{0}, {1}, {2}, {3}}, kind, 5, kSteps));
  }
}

// One step: ResNet-18 with few samples is so sensitive that a change of its first weights in the
// last bit alone moves them by parts in a hundred after two.
TEST(SynchronousPipeline, Resnet18) {
  models::ModelOptions options = models::default_options("resnet18");
  options.batch = 24;
  options.image = 64;
  options.classes = 10;
  PipelineSpec spec = spec_of(models::build_model("resnet18", options), {{0}, {1, 2}, {3}},
                              parallel::ScheduleKind::one_f_one_b_flush, 3, kSteps);
  spec.steps = 1;
  expect_as_alone(spec);
}

TEST(SynchronousPipeline, RoundRobinReplicas) {
  for (parallel::ScheduleKind kind : kSynchronous) {
    PipelineSpec spec = spec_of(vgg_like(20), {{0, 1}, {2, 3, 4}, {5}}, kind, 5, kSteps);
    spec.round_robin = true;
    expect_as_alone(spec);
  }
}

TEST(SynchronousPipeline, StagesThatShareDevices) {
  for (parallel::ScheduleKind kind : kSynchronous) {
    expect_as_alone(spec_of(vgg_like(8), {{0}, {1}, {0}}, kind, 4, kSteps));
    expect_as_alone(spec_of(resnet_like(20), {{0, 1}, {1, 0}}, kind, 2, kSteps));
  }
}

TEST(SynchronousPipeline, SegmentAfterSegment) {
  PipelineSpec spec = spec_of(alexnet_like(12), {{0}, {1, 2}},
                              parallel::ScheduleKind::one_f_one_b_flush, 3, kSteps);
  spec.steps = 2;
  spec.optimizer.name = "adamw";
  expect_as_alone(spec, 3);
}

// Activations, their gradients and those of replicated weights, rounded to 11 or 8 bits. Biases,
// which begin at zero, are nothing but gradients.
TEST(SynchronousPipeline, SixteenBitsBetweenDevices) {
  for (const graph::DataType wire : {graph::DataType::f16, graph::DataType::bf16}) {
    PipelineSpec spec = spec_of(vgg_like(14), {{0, 1, 2}, {3}},
                                parallel::ScheduleKind::one_f_one_b_flush, 2, kSteps);
    TestPipeline full(spec);
    spec.wire = wire;
    expect_as_alone(spec, 1, wire == graph::DataType::f16 ? 2e-3 : 3e-2);
    TestPipeline narrowed(spec);
    TestPipeline again(spec);
    for (TestPipeline* pipeline : {&narrowed, &again, &full}) pipeline->train();
    EXPECT_EQ(narrowed.weights(), again.weights());
    EXPECT_GT(distance(narrowed.weights(), full.weights()), 1e-7) << "nothing was rounded";
  }
}

TEST(SynchronousPipeline, EvaluatesThroughItsStages) {
  for (const bool round_robin : {false, true}) {
    for (const graph::Graph& network : {resnet_like(20), alexnet_like(20)}) {
      PipelineSpec spec = spec_of(network, {{0}, {1, 2}, {3}},
                                  parallel::ScheduleKind::one_f_one_b_flush, 4, kSteps);
      spec.round_robin = round_robin;
      spec.evaluation = true;
      SCOPED_TRACE(std::string(round_robin ? "round robin" : "split") + ", " +
                   std::to_string(network.operator_count()) + " operators");
      TestPipeline pipeline(spec);
      pipeline.train();
      const std::vector<float> logits = pipeline.evaluate(7);
      pipeline.train();
      EXPECT_EQ(pipeline.losses().size(), 6u);
      TestPipeline again(spec);
      again.train();
      std::vector<float> expected;
      for (int64_t m = 0; m < 7; ++m) {
        const std::vector<float> part = evaluate_alone(network, 5, again.weights(m), m);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      EXPECT_LT(distance({{"logits", logits}}, {{"logits", expected}}), 1e-5);
    }
  }
}

}  // namespace
}  // namespace millrace::testing
