// Whole training steps in bf16 against the same in float32.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "base/parallel.h"
#include "base/random.h"
#include "compile/compiler.h"
#include "native_bf16.h"
#include "runtime/session.h"
#include "session_support.h"

namespace millrace::runtime {
namespace {

// One thread: those of a team wait for each other within oneDNN, which takes long where other
// programs want their cores.
compile::CompileOptions options_for(graph::DataType type) {
  set_team_size(1);
  compile::CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  options.kernels.threads = 1;
  options.precision.type = type;
  options.precision.arithmetic = passes::PrecisionSettings::Arithmetic::native;
  return options;
}

void feed(Session& session, const compile::Program& program, uint64_t batch = 5,
          bool rounded = false) {
  const Random random(5, batch);
  std::vector<float> images(static_cast<size_t>(program.input("images").type.elements()));
  for (size_t i = 0; i < images.size(); ++i) {
    images[i] = random.normal(i);
    if (rounded) images[i] = from_bf16(to_bf16(images[i]));
  }
  std::vector<int32_t> labels(static_cast<size_t>(program.input("labels").type.elements()));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>((i * 7 + batch) % 10);
  session.write_input(program, "images", images);
  session.write_input(program, "labels", labels);
}

enum class Batches : uint8_t { one, fresh };

std::vector<float> losses_of(const compile::Program& program, int steps,
                             Batches batches = Batches::one) {
  backend::Device device({.threads = 1});
  Session session(device, {&program});
  session.initialize(3);
  std::vector<float> losses;
  for (int step = 0; step < steps; ++step) {
    feed(session, program, batches == Batches::one ? 5 : static_cast<uint64_t>(step));
    session.run(program, {3, step, 0.002f});
    losses.push_back(session.scalar(program, "loss"));
  }
  return losses;
}

struct Network {
  const char* name;
  int64_t batch;
  int64_t image;
};

constexpr Network kFashion = {"fashion_cnn", 16, 28};
constexpr Network kResidual = {"resnet18", 16, 32};
constexpr Network kDepthwise = {"mobilefacenet", 4, 112};

TEST(NativePrecision, TenStepsOfTrainingFollowFloat32) {
  if (refuses_native_bf16()) return;
  const graph::Graph graph = small_model(kFashion.name, kFashion.batch, kFashion.image);
  const auto wide = losses_of(compile::compile_training(graph, options_for(graph::DataType::f32)),
                              10, Batches::fresh);
  const auto native = losses_of(
      compile::compile_training(graph, options_for(graph::DataType::bf16)), 10, Batches::fresh);
  for (size_t i = 0; i < wide.size(); ++i) {
    EXPECT_NEAR(native[i], wide[i], 0.01f * wide[i]) << "step " << i;
  }
  EXPECT_NE(native, wide);
}

// What a step does to every parameter, one behind the other.
std::vector<double> first_step(const compile::Program& program, bool round_images) {
  backend::Device device({.threads = 1});
  Session session(device, {&program});
  session.initialize(3);
  const auto parameters = [&] {
    std::vector<double> all;
    for (const compile::Slot& slot : session.state()) {
      if (slot.role != graph::Role::parameter) continue;
      std::vector<float> values(static_cast<size_t>(slot.type.elements()));
      session.read_state(slot, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  std::vector<double> moves = parameters();
  feed(session, program, 5, round_images);
  session.run(program, {3, 0, 1.0f});
  const std::vector<double> after = parameters();
  for (size_t i = 0; i < moves.size(); ++i) moves[i] = after[i] - moves[i];
  return moves;
}

double relative_error(const std::vector<double>& values, const std::vector<double>& expected) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

// Batch norms of few samples enlarge every difference on its way through a deep network: images
// that are rounded to bf16 change the float32 gradient by a tenth or more. bf16 throughout may
// cost a few times that, a wrong gradient costs all of it.
TEST(NativePrecision, GradientsOfDeepNetworksAreAsGoodAsTheirImages) {
  if (refuses_native_bf16()) return;
  for (const Network& net : {kFashion, kResidual, kDepthwise}) {
    const graph::Graph graph = small_model(net.name, net.batch, net.image);
    const compile::Program wide =
        compile::compile_training(graph, options_for(graph::DataType::f32));
    const compile::Program native =
        compile::compile_training(graph, options_for(graph::DataType::bf16));
    const std::vector<double> expected = first_step(wide, false);
    const double rounded = relative_error(first_step(wide, true), expected);
    const double error = relative_error(first_step(native, false), expected);
    EXPECT_GT(rounded, 0) << net.name;
    EXPECT_LT(error, 4 * rounded) << net.name;
    EXPECT_LT(error, 0.5) << net.name;
  }
}

// On one batch the loss nears zero, where a difference means little beside it: what counts is how
// far it has fallen.
TEST(NativePrecision, TenStepsOnOneBatchFallAsInFloat32) {
  if (refuses_native_bf16()) return;
  for (const Network& net : {kFashion, kResidual}) {
    const graph::Graph graph = small_model(net.name, net.batch, net.image);
    const auto wide =
        losses_of(compile::compile_training(graph, options_for(graph::DataType::f32)), 10);
    const auto native =
        losses_of(compile::compile_training(graph, options_for(graph::DataType::bf16)), 10);
    for (size_t i = 0; i < wide.size(); ++i) {
      EXPECT_NEAR(native[i], wide[i], 0.01f * wide[0]) << net.name << " step " << i;
    }
  }
}

TEST(NativePrecision, LossFallsOnAFixedBatch) {
  if (refuses_native_bf16()) return;
  const compile::Program program =
      compile::compile_training(small_model("resnet18", 8, 32), options_for(graph::DataType::bf16));
  backend::Device device({.threads = 1});
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
  if (refuses_native_bf16()) return;
  const graph::Graph graph = small_model("resnet18", 16, 64);
  const compile::Program wide = compile::compile_training(graph, options_for(graph::DataType::f32));
  const compile::Program native =
      compile::compile_training(graph, options_for(graph::DataType::bf16));
  EXPECT_LT(native.breakdown.activations, 0.55 * static_cast<double>(wide.breakdown.activations));
  EXPECT_EQ(native.breakdown.weights, wide.breakdown.weights);
  EXPECT_EQ(native.breakdown.optimizer, wide.breakdown.optimizer);
  EXPECT_LE(native.reorders, wide.reorders);
}

TEST(NativePrecision, EvaluationReadsTheSameWeights) {
  if (refuses_native_bf16()) return;
  const compile::Program training =
      compile::compile_training(small_model("resnet18", 4, 32), options_for(graph::DataType::bf16));
  const compile::Program evaluation = compile::compile_evaluation(
      small_model("resnet18", 6, 32), options_for(graph::DataType::bf16), training);
  backend::Device device({.threads = 1});
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
  if (refuses_native_bf16()) return;
  compile::CompileOptions keep = options_for(graph::DataType::bf16);
  keep.recompute = passes::RecomputePolicy::none;
  const graph::Graph graph = small_model("resnet18", 4, 64);
  EXPECT_EQ(losses_of(compile::compile_training(graph, keep), 3),
            losses_of(compile::compile_training(graph, options_for(graph::DataType::bf16)), 3));
}

}  // namespace
}  // namespace millrace::runtime
