// What 16-bit storage does to a device's memory.
#include <gtest/gtest.h>

#include "compile/arithmetic.h"
#include "compile/compiler.h"
#include "models/models.h"

namespace millrace::compile {
namespace {

CompileOptions options_for(graph::DataType type) {
  CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  options.precision = {.type = type, .arithmetic = passes::PrecisionSettings::Arithmetic::storage};
  return options;
}

graph::Graph model(const std::string& name, int64_t batch, int64_t image = 224) {
  models::ModelOptions options = models::default_options(name);
  options.batch = batch;
  options.image = image;
  return models::build_model(name, options);
}

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

TEST(Storage, HalvesTheActivationsOfResNet50) {
  const Program usual = compile_training(model("resnet50", 64), options_for(graph::DataType::f32));
  for (const graph::DataType type : {graph::DataType::f16, graph::DataType::bf16}) {
    const Program stored = compile_training(model("resnet50", 64), options_for(type));
    EXPECT_LE(ratio(stored.breakdown.activations, usual.breakdown.activations), 0.55);
    EXPECT_LE(ratio(stored.arena_bytes, usual.arena_bytes), 0.65);
    EXPECT_EQ(stored.breakdown.weights, usual.breakdown.weights);
    EXPECT_EQ(stored.breakdown.optimizer, usual.breakdown.optimizer);
  }
}

TEST(Storage, BreakdownAddsUpToTheArena) {
  for (const char* name : {"alexnet", "vgg16_bn", "resnet18", "mobilefacenet"}) {
    const int64_t image = std::string(name) == "mobilefacenet" ? 112 : 96;
    const Program program =
        compile_training(model(name, 4, image), options_for(graph::DataType::f16));
    EXPECT_EQ(program.breakdown.total(), program.arena_bytes) << name;
  }
}

// What a micro-batch keeps between its phases is what lies in a slot.
TEST(Storage, HalvesTheSlotsOfMicroBatches) {
  const auto saved = [](graph::DataType type) {
    CompileOptions options = options_for(type);
    options.shape.phasing = Phasing::micro_batches;
    options.shape.slots = 4;
    options.updates.accumulate = true;
    options.recompute = passes::RecomputePolicy::none;
    const Program program = compile_training(model("resnet18", 8, 64), options);
    EXPECT_EQ(program.breakdown.total(), program.arena_bytes);
    return program.memory.saved;
  };
  EXPECT_LE(ratio(saved(graph::DataType::bf16), saved(graph::DataType::f32)), 0.56);
}

TEST(Storage, EvaluationIsAsBefore) {
  const Program usual =
      compile_evaluation(model("resnet18", 4, 64), options_for(graph::DataType::f32));
  const Program stored =
      compile_evaluation(model("resnet18", 4, 64), options_for(graph::DataType::f16));
  EXPECT_EQ(stored.instructions.size(), usual.instructions.size());
  EXPECT_EQ(stored.arena_bytes, usual.arena_bytes);
}

TEST(Storage, SaysWhatIsInUse) {
  EXPECT_EQ(describe(options_for(graph::DataType::f32).precision), "float32 arithmetic");
  EXPECT_EQ(describe(options_for(graph::DataType::f16).precision),
            "float32 arithmetic, activations stored in fp16");
  EXPECT_TRUE(stores_in_16_bits(options_for(graph::DataType::bf16).precision));
  EXPECT_FALSE(stores_in_16_bits(options_for(graph::DataType::f32).precision));
}

}  // namespace
}  // namespace millrace::compile
