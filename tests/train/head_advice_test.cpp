#include "train/head_advice.h"

#include <gmock/gmock.h>

#include "compile/compiler.h"
#include "graph/builder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

// The formula against what is compiled for one part of the classes.
TEST(HeadAdvice, NeedsAreThoseOfTheCompiledHead) {
  constexpr int64_t kRows = 16, kDimension = 64;
  for (const HeadParallel parallel : {HeadParallel::dp, HeadParallel::mp, HeadParallel::pfc}) {
    for (const DataType storage : {DataType::f32, DataType::bf16}) {
      MarginHeadOptions head = {.classes = 9001, .parallel = parallel, .sample_rate = 0.1};
      head.storage = storage;
      const HeadNeeds needs = head_needs(head, parallel, 4, kRows, kDimension, 1);
      if (parallel != HeadParallel::dp) head.local_classes = 2251;
      if (parallel != HeadParallel::pfc) head.sample_rate = 1;
      Builder net;
      net.margin_head(net.input("embeddings", {kRows, kDimension}), head);
      const Graph graph = net.take();
      CompileOptions options;
      options.kernels.threads = 1;
      const Program program = compile_training(graph, options);
      const int64_t state = program.breakdown.weights + program.breakdown.optimizer;
      const double kept = needs.bytes - static_cast<double>(state);
      EXPECT_GE(kept, 0);
      for (const Instruction& instruction : program.instructions) {
        if (instruction.type != "margin_head_statistics") continue;
        EXPECT_NEAR(kept, static_cast<double>(instruction.written.at(1).elements * 4), 256);
      }
    }
  }
}

TEST(HeadAdvice, TheFastestThatFitsIsNamed) {
  const HeadQuestion question = {1000000, 0.1, 8, 8e9};
  std::vector<HeadChoice> choices = {{HeadParallel::dp, 300, 9e9, false},
                                     {HeadParallel::mp, 100, 6e9, true},
                                     {HeadParallel::pfc, 200, 5e9, true}};
  EXPECT_THAT(
      advise_head(question, choices),
      HasSubstr("--head-parallel pfc is the fastest that fits into 7.45 GiB, 200 samples/s"));
  EXPECT_THAT(advise_head(question, choices), HasSubstr("10 % of the 1000000 classes"));
  EXPECT_THAT(advise_head(question, choices), HasSubstr("dp does not fit with 8.38 GiB"));
  choices[0].fits = true;
  EXPECT_THAT(advise_head(question, choices), HasSubstr("--head-parallel dp is the fastest"));
  for (HeadChoice& choice : choices) choice.fits = false;
  EXPECT_THAT(advise_head(question, choices), HasSubstr("pfc, the smallest, needs 4.66 GiB"));
}

}  // namespace
}  // namespace millrace
