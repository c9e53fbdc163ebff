// Plans from profiles of both kinds, and predictions from saved ones.
#include <gmock/gmock.h>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kVgg = std::string(MILLRACE_TEST_DATA) + "/../planner/profiles/vgg16.txt";
const std::string kFour = " --workers 4,2 --bandwidth 1e10,1e9";

class PlanProfileTest : public ProgramTest {
 protected:
  Json json_of(const std::string& arguments) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }
};

TEST_F(PlanProfileTest, TextProfilesAreSearched) {
  const std::string command = "plan --auto --profile " + kVgg + " --profile-batch 64" + kFour;
  const Json plan = json_of(command + " --json --trace trace.json");
  EXPECT_TRUE(plan["fits"].get<bool>());
  EXPECT_EQ(plan["profile_samples"], 64);
  EXPECT_EQ(plan["devices"].size(), 8u);
  EXPECT_FALSE(plan.contains("device_memory_bytes"));
  const double theirs = plan["pipedream"]["predicted_samples_per_second"].get<double>();
  EXPECT_GE(plan["predicted_samples_per_second"].get<double>(), theirs * (1 - 1e-9));
  EXPECT_EQ(plan["search"]["pipedream"]["predicted_samples_per_second"], theirs);
  EXPECT_FALSE(plan["search"]["others"].empty());
  EXPECT_FALSE(Json::parse(read_text(work() / "trace.json"))["traceEvents"].empty());
  EXPECT_THAT(run(command).output, AllOf(HasSubstr("The best:"), HasSubstr("PipeDream's own plan"),
                                         HasSubstr("times of the profile")));
  const Json twice = json_of(command + " --batch 128 --json --global-batch 512");
  EXPECT_LE(twice["global_batch"].get<double>(), 512);
}

TEST_F(PlanProfileTest, LimitsAndRulesAreObeyed) {
  const std::string command = "plan --auto --profile " + kVgg + " --profile-batch 64 --json";
  const Json straight = json_of(command + kFour + " --straight --memory 64e9");
  for (const Json& stage : straight["devices"]) {
    EXPECT_LE(stage["peak_bytes"].get<double>(), 64e9);
  }
  EXPECT_EQ(straight["stages"].size(), 8u);
  const Json nothing = json_of(command + kFour + " --memory 1e6");
  EXPECT_FALSE(nothing["fits"].get<bool>());
  EXPECT_TRUE(nothing["best"].empty());
  const Json cluster = json_of(command + " --cluster titanv-8x2 --devices 8");
  EXPECT_EQ(cluster["cluster"], "titanv-8x2");
  EXPECT_EQ(cluster["devices"].size(), 8u);
}

TEST_F(PlanProfileTest, OwnProfilesArePlannedPredictedAndTrained) {
  const std::string job =
      " --model fashion_cnn --batch 8 --conv-algo direct --threads-per-device 1 --oversubscribe";
  ASSERT_EQ(run("profile" + job + " --rounds 2 --output saved.json").status, 0);
  const std::string workers = " --workers 2 --bandwidth 1e9";
  const Json alone = json_of("plan --auto --profile saved.json --json" + workers);
  EXPECT_EQ(alone["profile_samples"], 8);
  EXPECT_EQ(alone["model"], "saved");
  expect_refusal("plan --auto --profile saved.json --output plan.json" + workers,
                 "--output needs --model");
  const Json plan = json_of(
      "plan --auto --profile saved.json --model fashion_cnn --batch 8 --json --output plan.json" +
      workers);
  const Outcome trained = run("train --plan plan.json --steps 2 --lr 0.01 --quiet --recompute " +
                              plan["flags"]["--recompute"].get<std::string>() + job);
  EXPECT_EQ(trained.status, 0) << trained.errors;
  expect_refusal("plan --auto --profile saved.json --model resnet18" + workers,
                 "of resnet18; leave out --model");

  const std::string predict = "plan --predict --profile saved.json --json --steps 3" + job;
  const Json first = json_of(predict), second = json_of(predict);
  EXPECT_GT(first["predicted_step_seconds"].get<double>(), 0);
  EXPECT_EQ(first["predicted_step_seconds"], second["predicted_step_seconds"]);
  EXPECT_GE(first["error_estimate"].get<double>(), 0.05275 - 1e-12);
  EXPECT_THAT(first["error_estimate_from"]["from"].get<std::string>(), HasSubstr("prediction.py"));
  expect_refusal("plan --predict --profile saved.json --model fashion_cnn --batch 4",
                 "its batch is 8, here it is 4");
  write_text(work() / "damaged.json", "{\"millrace_profile\": 2}");
  expect_refusal("plan --predict --profile damaged.json" + job, "'model' is missing");
}

TEST_F(PlanProfileTest, MistakesAreOneSentence) {
  const std::string command = "plan --auto --profile " + kVgg;
  expect_refusal(command, "needs --cluster, or --workers and --bandwidth");
  expect_refusal(command + " --workers 2,2,2 --bandwidth 1e9,1e9,1e9", "takes one or two");
  expect_refusal(command + " --workers 2,2 --bandwidth 1e9", "one number per level");
  expect_refusal(command + " --workers 2 --bandwidth 0", "bandwidth 0");
  expect_refusal(command + " --cluster titanv-8 --bandwidth 1e9", "both describe links");
  expect_refusal(command + kFour + " --classes 10", "--classes does not go with --profile");
  expect_refusal(command + kFour + " --profile-batch 0", "--profile-batch is 0");
  expect_refusal(command + kFour + " --memory 0", "--memory");
  expect_refusal(command + kFour + " --devices 2", "--devices goes with --cluster");
  expect_refusal("plan --auto --profile absent.txt" + kFour, "absent.txt");
  expect_refusal("plan --model vgg16 --profile " + kVgg,
                 "--profile goes with --strategy pipedream");
  expect_refusal("plan --model vgg16 --cluster absent.json", "a100-80gb-8, here");
}

}  // namespace
}  // namespace millrace::cli
