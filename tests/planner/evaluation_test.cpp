#include "evaluation.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "reference.h"

namespace millrace::planner {
namespace {

Profile two_nodes() {
  Profile profile;
  profile.nodes = {{"a", "first", 100, 200, 3e8, 1e8, {}}, {"b", "second", 50, 50, 2e8, 4e8, {}}};
  profile.edges = {{0, 1}};
  return profile;
}

TEST(EvaluationTest, OneLevelByHand) {
  PipedreamOptions options{.levels = {{3, 1e9}}};
  const std::vector<PipelineStage> stages = {{{0}, 2, {}}, {{1}, 1, {}}};
  // First stage: (0.3 + 4 * 1 * 1e8 / (2 * 1e9)) / 2 = 0.25; the second takes 0.1.
  EXPECT_DOUBLE_EQ(evaluate_partition(two_nodes(), options, stages).seconds, 0.25);
  // With activations counted: 2 * 3e8 / 1e9 / 2 = 0.3.
  options.activation_ratio = 2;
  EXPECT_DOUBLE_EQ(evaluate_partition(two_nodes(), options, stages).seconds, 0.3);
  // One worker stands behind the first stage: one copy of 3e8 + 1e8 bytes.
  options.memory_bytes = 4e8;
  EXPECT_TRUE(evaluate_partition(two_nodes(), options, stages).fits);
  options.memory_bytes = 3.9e8;
  EXPECT_FALSE(evaluate_partition(two_nodes(), options, stages).fits);
}

TEST(EvaluationTest, TwoLevelsByHand) {
  const PipedreamOptions options{.levels = {{2, 1e10}, {2, 1e9}}};
  // Inside: max(0.3, 0.1). Outside: one stage twice, its all-reduce shared by two workers:
  // (0.3 + 4 * 1 * 5e8 / (2 * 1e9) / 2) / 2.
  const std::vector<PipelineStage> stages = {{{0, 1}, 2, {{{0}, 1, {}}, {{1}, 1, {}}}}};
  EXPECT_DOUBLE_EQ(evaluate_partition(two_nodes(), options, stages).seconds, 0.4);
}

TEST(EvaluationTest, NoDivisionIsRefused) {
  PipedreamOptions options{.levels = {{2, 1e9}}};
  const std::vector<std::vector<PipelineStage>> bad = {
      {},
      {{{0}, 2, {}}},                   // leaves one out
      {{{1}, 1, {}}, {{0}, 1, {}}},     // backwards
      {{{0, 0}, 1, {}}, {{1}, 1, {}}},  // twice
      {{{0}, 1, {}}, {{0, 1}, 1, {}}},  // twice
      {{{0, 1, 2}, 2, {}}},             // no such node
      {{{0, 1, -1}, 2, {}}},            //
      {{{0, 1}, 1, {}}},                // a worker is idle
      {{{0}, 2, {}}, {{1}, 1, {}}},     // too many workers
      {{{0}, 2, {}}, {{1}, 0, {}}},     // no worker
  };
  for (size_t index = 0; index < bad.size(); ++index) {
    EXPECT_THROW(evaluate_partition(two_nodes(), options, bad[index]), InputError) << index;
  }
  options.straight = true;
  EXPECT_THROW(evaluate_partition(two_nodes(), options, {{{0, 1}, 2, {}}}), InputError);
}

}  // namespace
}  // namespace millrace::planner
