#include "runtime/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/random.h"
#include "compile/compiler.h"
#include "session_support.h"

namespace millrace::runtime {
namespace {

compile::CompileOptions options_for(bool reference = false) {
  compile::CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  options.kernels.threads = 2;
  options.kernels.reference_only = reference;
  return options;
}

void feed(Session& session, const compile::Program& program) {
  const Random random(5, 5);
  std::vector<float> images(static_cast<size_t>(program.input("images").type.elements()));
  for (size_t i = 0; i < images.size(); ++i) images[i] = random.normal(i);
  std::vector<int32_t> labels(static_cast<size_t>(program.input("labels").type.elements()));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 7 % 10);
  session.write_input(program, "images", images);
  session.write_input(program, "labels", labels);
}

std::vector<std::vector<float>> train(const compile::Program& program, int threads, int steps,
                                      std::vector<float>* losses = nullptr) {
  backend::Device device({.threads = threads});
  Session session(device, {&program});
  session.initialize(3);
  feed(session, program);
  for (int step = 0; step < steps; ++step) {
    session.run(program, {3, step, 0.01f});
    if (losses != nullptr) losses->push_back(session.scalar(program, "loss"));
  }
  std::vector<std::vector<float>> state;
  for (const compile::Slot& slot : session.state()) {
    state.emplace_back(static_cast<size_t>(slot.type.elements()));
    session.read_state(slot, state.back());
  }
  return state;
}

TEST(Session, ATraceHasEveryInstructionInOrder) {
  const compile::Program program =
      compile::compile_training(small_model("fashion_cnn", 2, 28), options_for());
  backend::Device device({.threads = 1});
  Session session(device, {&program});
  TraceRecorder recorder({{0, 0, 0}}, 10000);
  session.set_trace(&recorder, 0);
  session.initialize(3);
  feed(session, program);
  session.run(program, {3, 0, 0.01f});
  const TraceLog log = recorder.log();
  ASSERT_EQ(log.instructions.size(), program.instructions.size());
  int64_t before = 0;
  std::set<std::string> layers;
  for (size_t i = 0; i < log.instructions.size(); ++i) {
    const TraceInstruction& ran = log.instructions[i];
    const compile::Instruction& instruction = program.instructions[i];
    EXPECT_EQ(ran.label.name, instruction.name);
    EXPECT_EQ(ran.label.bytes, instruction.bytes_touched);
    EXPECT_EQ(ran.label.arithmetic, instruction.arithmetic);
    EXPECT_GE(ran.begin, before);
    before = ran.end;
    layers.insert(ran.label.layer);
  }
  for (const char* layer : {"conv1", "layer1.0.conv1", "fc"}) {
    EXPECT_TRUE(layers.contains(layer)) << layer;
  }
  EXPECT_FALSE(layers.contains("conv1.weight")) << "an update belongs to its layer";
}

TEST(Session, StateSurvivesTheRoundTripThroughBlockedLayouts) {
  const compile::Program program =
      compile::compile_training(small_model("resnet18", 2, 32), options_for());
  backend::Device device({.threads = 1});
  Session session(device, {&program});
  for (const compile::Slot& slot : session.state()) {
    std::vector<float> values(static_cast<size_t>(slot.type.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1013) - 500;
    session.write_state(slot, values);
    std::vector<float> back(values.size());
    session.read_state(slot, back);
    ASSERT_EQ(values, back) << slot.name << " " << slot.layout.tag();
  }
}

TEST(Session, SameSeedGivesTheSameBits) {
  const compile::Program program =
      compile::compile_training(small_model("resnet18", 4, 32), options_for());
  EXPECT_EQ(train(program, 2, 3), train(program, 2, 3));
}

TEST(Session, LossFallsOnAFixedBatch) {
  const compile::Program program =
      compile::compile_training(small_model("resnet18", 8, 32), options_for());
  std::vector<float> losses;
  train(program, 2, 12, &losses);
  EXPECT_LT(losses.back(), 0.5f * losses.front());
}

// The whole training step by the naive kernels and plain layouts is the independent answer.
TEST(Session, FastKernelsFollowTheNaiveOnes) {
  const graph::Graph graph = small_model("fashion_cnn", 3, 28);
  std::vector<float> fast;
  std::vector<float> naive;
  train(compile::compile_training(graph, options_for(false)), 2, 3, &fast);
  train(compile::compile_training(graph, options_for(true)), 2, 3, &naive);
  for (size_t i = 0; i < fast.size(); ++i) {
    EXPECT_NEAR(fast[i], naive[i], 2e-4f * std::abs(naive[i])) << "step " << i;
  }
}

TEST(Session, RecomputingChangesNothing) {
  compile::CompileOptions keep = options_for();
  keep.recompute = passes::RecomputePolicy::none;
  const auto graph = small_model("resnet18", 4, 64);
  EXPECT_EQ(train(compile::compile_training(graph, keep), 2, 2),
            train(compile::compile_training(graph, options_for()), 2, 2));
}

// Dropout draws the same numbers again; batch norms keep their statistics and count a step once.
TEST(Session, RecomputingConvolutionsChangesNothing) {
  for (const char* name : {"fashion_cnn", "alexnet", "resnet18"}) {
    compile::CompileOptions keep = options_for();
    keep.recompute = passes::RecomputePolicy::none;
    compile::CompileOptions again = options_for();
    again.recompute = passes::RecomputePolicy::all;
    const graph::Graph graph = small_model(name, 4, std::string(name) == "fashion_cnn" ? 28 : 64);
    const compile::Program program = compile::compile_training(graph, again);
    EXPECT_GT(program.recomputed_costly, 0) << name;
    std::vector<float> losses;
    std::vector<float> expected;
    EXPECT_EQ(train(program, 2, 2, &losses),
              train(compile::compile_training(graph, keep), 2, 2, &expected))
        << name;
    EXPECT_EQ(losses, expected) << name;
  }
}

// To the byte, but for what a kernel books as its workspace and then does not need.
TEST(Session, TheArenaIsUsedToTheByteThatWasPlanned) {
  const compile::Program program =
      compile::compile_training(small_model("resnet18", 8, 64), options_for());
  backend::Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(1);
  feed(session, program);
  session.run(program, {1, 0, 0.01f});
  EXPECT_EQ(session.arena_bytes(), program.arena_bytes);
  const int64_t page = 4096;
  const int64_t planned = (program.arena_bytes + page - 1) / page * page;
  EXPECT_LE(session.resident_bytes(), planned);
  EXPECT_GE(session.resident_bytes(), planned - program.breakdown.workspace);
}

TEST(Session, EvaluationRunsBesideTraining) {
  const compile::Program training =
      compile::compile_training(small_model("resnet18", 4, 32), options_for());
  const compile::Program evaluation =
      compile::compile_evaluation(small_model("resnet18", 6, 32), options_for(), training);
  backend::Device device({.threads = 2});
  Session session(device, {&training, &evaluation});
  session.initialize(1);
  feed(session, evaluation);
  session.run(evaluation, {});
  const auto before = session.result(evaluation, "logits");
  feed(session, training);
  session.run(training, {1, 0, 0.05f});
  feed(session, evaluation);
  session.run(evaluation, {});
  const auto after = session.result(evaluation, "logits");
  EXPECT_EQ(before.size(), 60u);
  EXPECT_NE(before, after);
  for (float logit : after) EXPECT_TRUE(std::isfinite(logit));
}

}  // namespace
}  // namespace millrace::runtime
