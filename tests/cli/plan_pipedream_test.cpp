#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;

const std::string kProfile = MILLRACE_TEST_DATA "/../planner/profiles/alexnet.txt";
const std::string kPlan = "plan --strategy pipedream --profile " + kProfile;

class PlanPipedreamTest : public ProgramTest {};

TEST_F(PlanPipedreamTest, JsonHasThePublishedOptimum) {
  const Outcome outcome = run(kPlan + " --workers 4 --bandwidth 1e9 --activation-ratio 1 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json plan = Json::parse(outcome.output);
  EXPECT_NEAR(plan["pipeline_seconds"].get<double>(), 0.03421714133333333, 1e-11);
  EXPECT_NEAR(plan["data_parallel_seconds"].get<double>(), 0.20463277, 1e-10);
  ASSERT_EQ(plan["stages"].size(), 2u);
  EXPECT_EQ(plan["stages"][0]["replicas"], 3);
  EXPECT_EQ(plan["stages"][1]["replicas"], 1);
  EXPECT_EQ(plan["stages"][0]["nodes"].size() + plan["stages"][1]["nodes"].size(), 22u);
  EXPECT_EQ(plan["stages"][0]["first"], "node2");
  EXPECT_EQ(plan["stages"][1]["last"], "node23");
}

TEST_F(PlanPipedreamTest, TwoLevelsMultiplyReplicas) {
  const Outcome outcome =
      run(kPlan + " --workers 4,4 --bandwidth 1e10,1e9 --activation-ratio 1 --memory 16e9 --json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  const Json plan = Json::parse(outcome.output);
  int64_t total = 0;
  for (const Json& stage : plan["stages"]) {
    const auto levels = stage["replicas_per_level"].get<std::vector<int64_t>>();
    ASSERT_EQ(levels.size(), 2u);
    EXPECT_EQ(stage["replicas"].get<int64_t>(), levels[0] * levels[1]);
    EXPECT_EQ(stage["position_per_level"].size(), 2u);
    total += stage["replicas"].get<int64_t>();
  }
  EXPECT_EQ(total, 16);
}

TEST_F(PlanPipedreamTest, TheTableIsReadable) {
  const Outcome outcome = run(kPlan + " --workers 4 --bandwidth 1e9 --activation-ratio 1");
  EXPECT_EQ(outcome.status, 0);
  for (const char* part : {"replicas", "node2 to node14", "0.034217 s", "5.98 times"}) {
    EXPECT_THAT(outcome.output, HasSubstr(part));
  }
}

TEST_F(PlanPipedreamTest, WhatCannotBeIsSaid) {
  const std::string flags = " --workers 30 --bandwidth 1e9 --straight";
  const Outcome outcome = run(kPlan + flags + " --json");
  EXPECT_EQ(outcome.status, 0);
  const Json plan = Json::parse(outcome.output);
  EXPECT_TRUE(plan["pipeline_seconds"].is_null());
  EXPECT_FALSE(plan["fits"].get<bool>());
  EXPECT_TRUE(plan["stages"].empty());
  EXPECT_THAT(run(kPlan + flags).output, HasSubstr("--fewer"));
  EXPECT_TRUE(Json::parse(run(kPlan + flags + " --fewer --json").output)["fits"].get<bool>());
}

TEST_F(PlanPipedreamTest, OddNamesAreStillJson) {
  write_text(work() / "odd",
             "\xff\x01\" -- \xfe -- forward_compute_time=1, backward_compute_time=2, "
             "activation_size=3, parameter_size=4\n");
  const Outcome outcome =
      run("plan --strategy pipedream --profile odd --workers 1 --bandwidth 1 --json");
  EXPECT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(Json::parse(outcome.output)["stages"].size(), 1u);
}

TEST_F(PlanPipedreamTest, BadUsageIsOneSentence) {
  const std::string good = kPlan + " --workers 4 --bandwidth 1e9";
  expect_refusal("plan --strategy pipedraem", "did you mean 'pipedream'?");
  expect_refusal("plan --strategy pipedream", "--profile");
  expect_refusal(kPlan, "--workers");
  expect_refusal(kPlan + " --workers 4", "--bandwidth");
  expect_refusal(kPlan + " --workers 4,4 --bandwidth 1e9", "2 levels");
  expect_refusal(kPlan + " --workers 4, --bandwidth 1e9,1e9", "--workers");
  expect_refusal(kPlan + " --workers four --bandwidth 1e9", "--workers");
  expect_refusal(kPlan + " --workers 0 --bandwidth 1e9", "workers");
  expect_refusal(kPlan + " --workers 99999999999 --bandwidth 1e9", "--workers");
  expect_refusal(kPlan + " --workers 4 --bandwidth fast", "--bandwidth");
  expect_refusal(kPlan + " --workers 4 --bandwidth 0", "bandwidth");
  expect_refusal(good + " --activation-ratio 0", "ratio");
  expect_refusal(good + " --activation-ratio x", "--activation-ratio");
  expect_refusal(good + " --memory much", "--memory");
  expect_refusal(good + " --memory 0", "memory");
  expect_refusal(good + " --model vgg16", "--model");
  expect_refusal(good + " --strait", "did you mean '--straight'?");
  expect_refusal("plan --model fashion_cnn --straight", "--straight");
  expect_refusal("plan --model fashion_cnn --workers 4,4", "--workers");
  expect_refusal("plan --strategy pipedream --profile absent --workers 4 --bandwidth 1e9",
                 "absent");
  write_text(work() / "bad", "nonsense\n");
  expect_refusal("plan --strategy pipedream --profile bad --workers 4 --bandwidth 1e9", "line 1");
  expect_refusal("plan --strategy pipedream --profile . --workers 4 --bandwidth 1e9", "'.'");
}

}  // namespace
}  // namespace millrace::cli
