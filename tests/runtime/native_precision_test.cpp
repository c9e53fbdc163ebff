// Whole training steps in bf16 against the same in float32.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "compile/compiler.h"
#include "models/models.h"
#include "runtime/session.h"

namespace millrace {
namespace {

CompileOptions options_for(DataType type) {
  CompileOptions options;
  options.kernels.convolution = ConvolutionAlgorithm::direct;
  options.kernels.threads = 2;
  options.precision.type = type;
  options.precision.arithmetic = PrecisionSettings::Arithmetic::native;
  return options;
}

Graph model(const std::string& name, int64_t batch, int64_t image) {
  ModelOptions options = default_options(name);
  options.batch = batch;
  options.image = image;
  options.classes = 10;
  return build_model(name, options);
}

void feed(Session& session, const Program& program) {
  const Random random(5, 5);
  std::vector<float> images(static_cast<size_t>(program.input("images").type.elements()));
  for (size_t i = 0; i < images.size(); ++i) images[i] = random.normal(i);
  std::vector<int32_t> labels(static_cast<size_t>(program.input("labels").type.elements()));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  session.write_input(program, "images", images);
  session.write_input(program, "labels", labels);
}

std::vector<float> losses_of(const Program& program, int steps, float rate = 0.002f) {
  Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(3);
  feed(session, program);
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    session.run(program, {3, step, rate});
    losses.push_back(session.scalar(program, "loss"));
  }
  return losses;
}

struct Network {
  const char* name;
  int64_t batch;
  int64_t image;
  float rate = 0.002f;
};

TEST(NativePrecision, TenStepsFollowFloat32) {
  for (const Network& net : {Network{"fashion_cnn", 16, 28}, Network{"resnet18", 16, 32},
                             Network{"mobilefacenet", 4, 112, 1e-4f}}) {
    const Graph graph = model(net.name, net.batch, net.image);
    const auto wide = losses_of(compile_training(graph, options_for(DataType::f32)), 10, net.rate);
    const auto native =
        losses_of(compile_training(graph, options_for(DataType::bf16)), 10, net.rate);
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_NEAR(native[i], wide[i], 0.01f * wide[i]) << net.name << " step " << i;
    }
    EXPECT_NE(native, wide) << net.name;
  }
}

TEST(NativePrecision, LossFallsOnAFixedBatch) {
  const Program program = compile_training(model("resnet18", 8, 32), options_for(DataType::bf16));
  Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(3);
  feed(session, program);
  std::vector<float> losses;
  for (int step = 0; step < 12; ++step) {
    session.run(program, {3, step, 0.01f});
    losses.push_back(session.scalar(program, "loss"));
  }
  EXPECT_LT(losses.back(), 0.5f * losses.front());
}

TEST(NativePrecision, ActivationsTakeHalfTheMemoryAndNothingElseGrows) {
  const Graph graph = model("resnet18", 16, 64);
  const Program wide = compile_training(graph, options_for(DataType::f32));
  const Program native = compile_training(graph, options_for(DataType::bf16));
  EXPECT_LT(native.breakdown.activations, 0.55 * static_cast<double>(wide.breakdown.activations));
  EXPECT_EQ(native.breakdown.weights, wide.breakdown.weights);
  EXPECT_EQ(native.breakdown.optimizer, wide.breakdown.optimizer);
  EXPECT_LE(native.reorders, wide.reorders);
}

TEST(NativePrecision, EvaluationReadsTheSameWeights) {
  const Program training = compile_training(model("resnet18", 4, 32), options_for(DataType::bf16));
  const Program evaluation =
      compile_evaluation(model("resnet18", 6, 32), options_for(DataType::bf16), training);
  Device device({.threads = 2});
  Session session(device, {&training, &evaluation});
  session.initialize(1);
  feed(session, training);
  session.run(training, {1, 0, 0.05f});
  feed(session, evaluation);
  session.run(evaluation, {});
  const auto logits = session.result(evaluation, "logits");
  EXPECT_EQ(logits.size(), 60u);
  for (float logit : logits) EXPECT_TRUE(std::isfinite(logit));
}

TEST(NativePrecision, RecomputingChangesNothing) {
  CompileOptions keep = options_for(DataType::bf16);
  keep.recompute = RecomputePolicy::none;
  const Graph graph = model("resnet18", 4, 64);
  EXPECT_EQ(losses_of(compile_training(graph, keep), 3),
            losses_of(compile_training(graph, options_for(DataType::bf16)), 3));
}

}  // namespace
}  // namespace millrace
