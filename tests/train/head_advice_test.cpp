#include "train/head_advice.h"

#include <gmock/gmock.h>

#include "compile/compiler.h"
#include "graph/builder.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

// The formula against what is compiled for one part of the classes.
TEST(HeadAdvice, NeedsAreThoseOfTheCompiledHead) {
  constexpr int64_t kRows = 16, kDimension = 64;
  for (const graph::HeadParallel parallel :
       {graph::HeadParallel::dp, graph::HeadParallel::mp, graph::HeadParallel::pfc}) {
    for (const graph::DataType storage : {graph::DataType::f32, graph::DataType::bf16}) {
      graph::MarginHeadOptions head = {.classes = 9001, .parallel = parallel, .sample_rate = 0.1};
      head.storage = storage;
      const HeadNeeds needs = head_needs(head, parallel, 4, kRows, kDimension, 1);
      if (parallel != graph::HeadParallel::dp) head.local_classes = 2251;
      if (parallel != graph::HeadParallel::pfc) head.sample_rate = 1;
      graph::Builder net;
      net.margin_head(net.input("embeddings", {kRows, kDimension}), head);
      const graph::Graph graph = net.take();
      compile::CompileOptions options;
      options.kernels.threads = 1;
      const compile::Program program = compile::compile_training(graph, options);
      const int64_t state = program.breakdown.weights + program.breakdown.optimizer;
      const double kept = needs.bytes - static_cast<double>(state);
      EXPECT_GE(kept, 0);
      for (const compile::Instruction& instruction : program.instructions) {
        if (instruction.type != "margin_head_statistics") continue;
        EXPECT_NEAR(kept, static_cast<double>(instruction.written.at(1).elements * 4), 256);
      }
    }
  }
}

TEST(HeadAdvice, TheFastestThatFitsIsNamed) {
  const HeadQuestion question = {1000000, 0.1, 8, 8e9};
  std::vector<HeadChoice> choices = {{graph::HeadParallel::dp, 300, 9e9, false},
                                     {graph::HeadParallel::mp, 100, 6e9, true},
                                     {graph::HeadParallel::pfc, 200, 5e9, true}};
  EXPECT_THAT(
      advise_head(question, choices),
      HasSubstr("‹head_parallel› pfc is the fastest that fits into 7.45 GiB, 200 samples/s"));
  EXPECT_THAT(advise_head(question, choices), HasSubstr("10 % of the 1000000 classes"));
  EXPECT_THAT(advise_head(question, choices), HasSubstr("dp does not fit with 8.38 GiB"));
  choices[0].fits = true;
  EXPECT_THAT(advise_head(question, choices), HasSubstr("‹head_parallel› dp is the fastest"));
  for (HeadChoice& choice : choices) choice.fits = false;
  EXPECT_THAT(advise_head(question, choices), HasSubstr("pfc, the smallest, needs 4.66 GiB"));
}

}  // namespace
}  // namespace millrace::train
