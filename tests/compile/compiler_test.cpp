#include "compile/compiler.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "models/models.h"
#include "parallel/partition.h"

namespace millrace::compile {
namespace {

CompileOptions direct() {
  CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  return options;
}

graph::Graph model(const std::string& name, int64_t batch, int64_t image = 224) {
  models::ModelOptions options = models::default_options(name);
  options.batch = batch;
  options.image = image;
  return models::build_model(name, options);
}

int64_t weights_of(const Program& program, graph::Role role) {
  int64_t bytes = 0;
  for (const Slot& slot : program.state) {
    if (slot.role == role) bytes += slot.type.elements() * 4;
  }
  return bytes;
}

TEST(Compiler, BreakdownAddsUpToTheArena) {
  for (const char* name : {"alexnet", "vgg16", "resnet18", "resnet50"}) {
    const Program program = compile_training(model(name, 4, 96), direct());
    EXPECT_EQ(program.breakdown.total(), program.arena_bytes) << name;
  }
}

TEST(Compiler, StateHoldsEveryParameterOnceAndItsMomentum) {
  const Program program = compile_training(model("resnet50", 2, 64), direct());
  EXPECT_EQ(weights_of(program, graph::Role::parameter), 25557032 * 4);
  EXPECT_EQ(weights_of(program, graph::Role::optimizer_state), 25557032 * 4);
  std::set<std::string> names;
  for (const Slot& slot : program.state) EXPECT_TRUE(names.insert(slot.name).second) << slot.name;
}

// The large gradients of a classifier are used and dropped layer by layer.
TEST(Compiler, GradientsLiveBriefly) {
  const Program program = compile_training(model("vgg16", 1, 64), direct());
  EXPECT_LE(program.breakdown.gradients, 2 * 4096 * 25088 * 4LL);
}

TEST(Compiler, FullSizeModelsStaySmall) {
  const auto mebibytes = [](const Program& program) { return program.arena_bytes >> 20; };
  EXPECT_LT(mebibytes(compile_training(model("resnet50", 64), direct())), 3400);
  EXPECT_LT(mebibytes(compile_training(model("vgg16", 28), direct())), 2600);
  EXPECT_LT(mebibytes(compile_training(model("alexnet", 252), direct())), 1100);
}

TEST(Compiler, RecomputeSavesMemory) {
  CompileOptions keep = direct();
  keep.recompute = passes::RecomputePolicy::none;
  const Program kept = compile_training(model("resnet50", 8), keep);
  const Program again = compile_training(model("resnet50", 8), direct());
  EXPECT_EQ(kept.recomputed, 0);
  EXPECT_GT(again.recomputed, 20);
  EXPECT_LT(static_cast<double>(again.arena_bytes), 0.75 * static_cast<double>(kept.arena_bytes));
}

TEST(Compiler, AJobThatDoesNotFitIsRefusedWithTheTableAndARemedy) {
  CompileOptions options = direct();
  options.memory_limit = 450 << 20;
  try {
    compile_training(model("resnet50", 16), options);
    FAIL();
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("activations"), std::string::npos) << text;
    EXPECT_NE(text.find("a batch of about"), std::string::npos) << text;
  }
  options.memory_limit = 100 << 20;
  EXPECT_THROW(compile_training(model("resnet50", 1), options), InputError);
}

TEST(Compiler, EvaluationSharesTheStateOfTraining) {
  const Program training = compile_training(model("resnet18", 4, 64), direct());
  const Program evaluation = compile_evaluation(model("resnet18", 8, 64), direct(), training);
  std::map<std::string, Address> places;
  for (const Slot& slot : training.state) places[slot.name] = slot.address;
  for (const Slot& slot : evaluation.state) {
    ASSERT_TRUE(places.contains(slot.name)) << slot.name;
    EXPECT_EQ(places[slot.name], slot.address) << slot.name;
  }
  EXPECT_EQ(evaluation.memory.persistent(), training.memory.persistent());
  EXPECT_EQ(evaluation.result("logits").type.shape, (graph::Shape{8, 1000}));
}

// What the stage before waits for is made without the gradients of weights.
TEST(Compiler, BackwardToWeightsRunsApart) {
  const graph::Graph network = model("vgg16", 2, 32);
  const std::vector<int> stages = parallel::assign_by_share(network, {1, 1, 1});
  CompileOptions options = direct();
  options.updates.accumulate = true;
  options.shape = {.phasing = Phasing::micro_batches, .slots = 3, .split_backward = true};
  for (int stage = 0; stage < 3; ++stage) {
    const Program program = compile_stage(parallel::cut(network, stages, stage), options);
    EXPECT_EQ(program.breakdown.total(), program.arena_bytes);
    const TaskRange& backward = program.task(parallel::Work::backward_input);
    const TaskRange& weights = program.task(parallel::Work::backward_weights);
    EXPECT_EQ(weights.begin, backward.end);
    EXPECT_EQ(weights.end, program.task(parallel::Work::update).begin);
    int apart = 0;
    for (size_t i = backward.begin; i < weights.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      const bool of_weights =
          instruction.type == "accumulate" || instruction.type.ends_with("backward_weights");
      EXPECT_TRUE(!of_weights || i >= backward.end) << instruction.name;
      apart += of_weights ? 1 : 0;
    }
    EXPECT_GT(apart, 4);
    EXPECT_EQ(backward.begin == backward.end, stage == 0);
  }
}

}  // namespace
}  // namespace millrace::compile
