#include <gmock/gmock.h>

#include <set>

#include "program.h"

namespace millrace::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kJob =
    "--model fashion_cnn --conv-algo direct --threads-per-device 1 --oversubscribe ";

// Every list of plans that the search tells of.
std::vector<Json> all_plans(const Json& plan) {
  std::vector<Json> all;
  for (const char* list : {"best", "others"}) {
    for (const Json& one : plan["search"][list]) all.push_back(one);
  }
  return all;
}

class PlanHereTest : public ProgramTest {
 protected:
  Json planned(const std::string& flags) {
    const Outcome outcome = run("plan --auto --cluster here " + kJob + flags + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    errors_ = outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }

  Json trained(const std::string& plan_file) {
    const Outcome outcome = run(fmt::format(
        "train {} --steps 2 --lr 0.01 --quiet --plan {} --summary s.json", kJob, plan_file));
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return Json::parse(read_text(work() / "s.json"));
  }

  std::string errors_;
};

TEST_F(PlanHereTest, TheFastestByMeasurementIsChosenAndTrained) {
  const Json plan = planned(
      "--devices 2 --batch 4 --finalists 4 --rounds 1 --output plan.json --trace trace.json");
  EXPECT_THAT(errors_, HasSubstr("left: "));
  EXPECT_EQ(plan["global_batch"], 8);
  size_t finalists = 0, tried = 0;
  double best = 1e300, best_tried = 1e300;
  for (const Json& one : all_plans(plan)) {
    EXPECT_GT(one["estimated"], 0);
    EXPECT_EQ(one["device_count"], 2);
    if (!one.contains("predicted")) continue;
    ++finalists;
    best = std::min(best, one["predicted"].get<double>());
    if (one.contains("trained_seconds_per_step")) {
      ++tried;
      best_tried = std::min(best_tried, one["trained_seconds_per_step"].get<double>());
      EXPECT_THAT(one["verdict"].get<std::string>(), HasSubstr("when trained"));
    }
    EXPECT_GT(one["process_rss_bytes"], one["peak_bytes"]);
  }
  EXPECT_EQ(finalists, 4u);
  const Json& chosen = plan["search"]["best"][0];
  EXPECT_EQ(chosen["plan"], plan["plan"]);
  EXPECT_EQ(plan["predicted_seconds_per_step"], chosen["predicted"]);
  EXPECT_LE(chosen["predicted"].get<double>(), best * 1.15);
  if (tried == 0) {  // none came near the best
    EXPECT_DOUBLE_EQ(chosen["predicted"].get<double>(), best);
  } else {
    EXPECT_GT(tried, 1u);
    EXPECT_DOUBLE_EQ(chosen["trained_seconds_per_step"].get<double>(), best_tried);
    EXPECT_THAT(chosen["verdict"].get<std::string>(), HasSubstr("the fastest when trained"));
  }
  EXPECT_EQ(Json::parse(read_text(work() / "plan.json")), plan["plan"]);
  EXPECT_FALSE(Json::parse(read_text(work() / "trace.json"))["traceEvents"].empty());

  const Json summary = trained("plan.json");
  EXPECT_EQ(summary["plan"], plan["plan"]);
  EXPECT_EQ(summary["global_batch"], 8);
  ASSERT_EQ(summary["devices"].size(), plan["devices"].size());
  for (size_t i = 0; i < summary["devices"].size(); ++i) {
    EXPECT_EQ(summary["devices"][i]["peak_bytes"], plan["devices"][i]["peak_bytes"]);
  }
}

TEST_F(PlanHereTest, NumbersOfDevicesAreCompared) {
  const Outcome outcome = run("plan --auto " + kJob + "--global-batch 8 --finalists 12 --rounds 1");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.output, HasSubstr("the fastest "));
  EXPECT_THAT(outcome.errors, HasSubstr("data parallel on 1"));
  EXPECT_THAT(outcome.errors, HasSubstr("zero-bubble"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("could not")));
  EXPECT_THAT(outcome.output, Not(HasSubstr("could not")));
}

TEST_F(PlanHereTest, FormulasAloneDecideWhenAskedTo) {
  const Json plan = planned("--global-batch 8 --no-measure --output plan.json");
  EXPECT_EQ(errors_.find("left: "), std::string::npos);
  EXPECT_FALSE(plan["search"]["measured"].get<bool>());
  std::set<int> devices;
  for (const Json& one : all_plans(plan)) {
    EXPECT_FALSE(one.contains("predicted"));
    EXPECT_GE(one["estimated"], plan["search"]["best"][0]["estimated"]);
    devices.insert(one["device_count"].get<int>());
  }
  EXPECT_TRUE(devices.contains(1));
  EXPECT_EQ(trained("plan.json")["plan"], plan["plan"]);
}

TEST_F(PlanHereTest, WhatDoesNotFitIsNotMeasured) {
  const Json report = planned("--global-batch 8 --no-measure --device-memory 1MiB");
  EXPECT_FALSE(report["fits"].get<bool>());
  ASSERT_FALSE(report["others"].empty());
  EXPECT_THAT(report["others"][0]["verdict"].get<std::string>(), HasSubstr("does not fit"));
}

// The labels that devices with a part of the classes each would get from the others are made up.
TEST_F(PlanHereTest, DividedHeadsArePredicted) {
  const Outcome outcome =
      run("plan --predict --model mobilefacenet --head arcface --head-parallel mp --classes 50 "
          "--devices 2 --batch 2 --rounds 1 --conv-algo direct --threads-per-device 1 "
          "--oversubscribe --json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(Json::parse(outcome.output)["devices"].size(), 2u);
}

TEST_F(PlanHereTest, MistakesAreOneSentence) {
  const std::string job = "plan --auto --model fashion_cnn ";
  expect_refusal(job + "--devices 3 --global-batch 8", "cannot be divided over 3 devices");
  expect_refusal(job + "--devices 0", "--devices is 0");
  expect_refusal(job + "--finalists 0", "--finalists is 0");
  expect_refusal(job + "--rounds 0", "--rounds is 0");
  expect_refusal(job + "--cluster titanv-8 --no-measure",
                 "--no-measure has no effect without --auto on this");
}

}  // namespace
}  // namespace millrace::cli
