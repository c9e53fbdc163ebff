#include <gmock/gmock.h>

#include "program.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PlanClusterTest : public ProgramTest {
 protected:
  Json planned(const std::string& flags) {
    const Outcome outcome = run("plan " + flags + " --json");
    EXPECT_EQ(outcome.status, 0) << outcome.errors;
    return outcome.status == 0 ? Json::parse(outcome.output) : Json();
  }

  void expect_refusal(const std::string& flags, const std::string& part) {
    const Outcome outcome = run("plan " + flags);
    EXPECT_EQ(outcome.status, 2) << flags;
    EXPECT_THAT(outcome.errors, HasSubstr(part));
  }
};

const std::string kVgg = "--model vgg16 --batch 28 --cluster titanv-8 --as oneflow";

TEST_F(PlanClusterTest, PublishedRowsArePredicted) {
  const Json one = planned(kVgg);
  EXPECT_NEAR(one["predicted_epoch_seconds"].get<double>(), 1850.8, 0.2 * 1850.8);
  EXPECT_EQ(one["devices"].size(), 8u);
  EXPECT_EQ(one["global_batch"], 224);
  EXPECT_TRUE(one["fits"].get<bool>());
  const Json two = planned(kVgg + " --placement 0:0-6.0:7 --stage-weights 11:7");
  EXPECT_NEAR(two["predicted_epoch_seconds"].get<double>(), 1262.5, 0.2 * 1262.5);
  EXPECT_EQ(two["plan"]["schedule"], "ssp");
  EXPECT_EQ(two["devices"][7]["stage"], 1);
  double sum = 0;
  for (const auto& [name, bytes] : two["devices"][7]["breakdown"].items()) {
    sum += bytes.get<double>();
  }
  EXPECT_NEAR(sum, two["devices"][7]["peak_bytes"].get<double>(), 16);
  const double rate = two["predicted_samples_per_second"].get<double>();
  EXPECT_NEAR(two["predicted_epoch_seconds"].get<double>(), 1281167 / rate, 1e-6);
  EXPECT_TRUE(two["error_estimate"]["fitted"].get<bool>());
  EXPECT_NEAR(two["predicted_seconds_per_step"].get<double>(), 224 / rate, 1e-9);
}

TEST_F(PlanClusterTest, WhatDoesNotFitIsSaidSo) {
  const Json plan = planned(
      "--model vgg16 --batch 64 --cluster titanv-8 --as pipedream --placement 0:0-6.0:7 "
      "--stage-weights auto");
  EXPECT_FALSE(plan["fits"].get<bool>());
  EXPECT_THAT(plan["reason"].get<std::string>(), HasSubstr("Stage 0 needs"));
  EXPECT_EQ(plan["plan"]["replicas"], "roundrobin");
}

TEST_F(PlanClusterTest, HeadsOfManyClasses) {
  const std::string job =
      "--model iresnet50 --batch 128 --precision fp16 --cluster v100-32gb-8 --as insightface "
      "--classes 1000000 --head-parallel ";
  const double dp = planned(job + "dp")["predicted_samples_per_second"].get<double>();
  const double mp = planned(job + "mp")["predicted_samples_per_second"].get<double>();
  const double pfc = planned(job + "pfc")["predicted_samples_per_second"].get<double>();
  EXPECT_LT(dp, mp);
  EXPECT_LT(mp, pfc);
}

TEST_F(PlanClusterTest, SearchKeepsTheDivisionOfTheHeadThatWasAskedFor) {
  for (const char* way : {"dp", "mp", "pfc"}) {
    const Json json = planned(
        "--auto --model iresnet50 --cluster titanv-8 --classes 1000000 --head arcface "
        "--head-parallel " +
        std::string(way));
    EXPECT_EQ(json["flags"]["--head-parallel"], way);
  }
}

TEST_F(PlanClusterTest, SearchGivesTheBestAndWhyOthersLost) {
  const Json plan = planned(
      "--auto --cluster titanv-8x2 --model vgg16 --batch 32 --output plan.json --trace trace.json");
  EXPECT_TRUE(plan["fits"].get<bool>());
  EXPECT_EQ(plan["global_batch"], 512);
  const Json& best = plan["search"]["best"];
  ASSERT_GE(best.size(), 3u);
  for (size_t i = 1; i < best.size(); ++i) {
    EXPECT_GE(best[i - 1]["predicted_samples_per_second"], best[i]["predicted_samples_per_second"]);
    EXPECT_THAT(best[i]["verdict"].get<std::string>(), HasSubstr("slower"));
  }
  EXPECT_DOUBLE_EQ(best[0]["predicted_seconds_per_step"].get<double>(),
                   plan["predicted_seconds_per_step"].get<double>());
  EXPECT_FALSE(plan["search"]["others"].empty());
  const Json file = Json::parse(read_text(work() / "plan.json"));
  EXPECT_EQ(file, plan["plan"]);
  const Json trace = Json::parse(read_text(work() / "trace.json"));
  EXPECT_GT(trace["traceEvents"].size(), 10u);
}

TEST_F(PlanClusterTest, PlansOfTheSearchAreTakenBack) {
  const Json found = planned(
      "--auto --synchronous --cluster titanv-8x2 --model vgg16 --batch 32 --output plan.json");
  const Json again =
      planned("--cluster titanv-8x2 --model vgg16 --batch 32 --plan plan.json --recompute " +
              found["flags"]["--recompute"].get<std::string>());
  EXPECT_EQ(again["plan"], found["plan"]);
  EXPECT_NEAR(again["predicted_seconds_per_step"].get<double>(),
              found["predicted_seconds_per_step"].get<double>(), 1e-9);
}

// Whatever the search prefers can be trained as it is.
TEST_F(PlanClusterTest, PlansOfTheSearchAreTrained) {
  write_text(work() / "pair.json", R"({"name": "pair", "machines": 1, "devices_per_machine": 2,
      "host_cores": 2, "device": {"name": "core", "memory_bytes": 2e9, "fp32_operations": 1e11,
      "fp16_operations": 1e11, "memory_bandwidth": 1e10},
      "links": {"PHB": {"bandwidth": 5e9, "latency": 1e-6}}, "topology": ["X PHB", "PHB X"],
      "network": {"bandwidth": 1e9, "latency": 1e-5}})");
  const Json found =
      planned("--auto --cluster pair.json --model fashion_cnn --batch 8 --output 0.json");
  const Json& best = found["search"]["best"];
  ASSERT_GE(best.size(), 2u);
  EXPECT_EQ(Json::parse(read_text(work() / "0.json")), best[0]["plan"]);
  for (size_t i = 0; i < best.size(); ++i) {
    const std::string file = std::to_string(i) + ".json";
    if (i > 0) write_text(work() / file, best[i]["plan"].dump());
    const Outcome trained =
        run(fmt::format("train --model fashion_cnn --batch {} --recompute {} --steps 2 --lr 0.01 "
                        "--conv-algo direct "
                        "--threads-per-device 1 --oversubscribe --quiet --summary s.json --plan {}",
                        best[i]["flags"]["--batch"].get<double>(),
                        best[i]["flags"]["--recompute"].get<std::string>(), file));
    EXPECT_EQ(trained.status, 0) << best[i]["shape"] << trained.errors;
    EXPECT_EQ(Json::parse(read_text(work() / "s.json"))["plan"], best[i]["plan"]);
  }
}

TEST_F(PlanClusterTest, TextNamesStagesAndError) {
  const Outcome outcome = run("plan " + kVgg + " --placement 0:0-6.0:7 --stage-weights 11:7");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("stage 1 on 0:7"), HasSubstr("samples/s"),
                                    HasSubstr("at worst"), HasSubstr("Fits into")));
  EXPECT_THAT(run("plan --model vgg16 --cluster titanv-8").output, HasSubstr("guesses"));
}

TEST_F(PlanClusterTest, MistakesAreOneSentence) {
  expect_refusal("--model vgg16 --as oneflow", "--as needs --cluster or --auto");
  expect_refusal(kVgg + " --placement 0:0-8", "--placement names device 0:8");
  expect_refusal(kVgg + " --devices 9", "--devices is 9, but cluster 'titanv-8' has 8");
  expect_refusal("--model vgg16 --cluster titanv", "did you mean 'titanv-8'");
  expect_refusal(kVgg + "x", "did you mean 'oneflow'");
  expect_refusal(kVgg + " --precision fp8", "--precision is 'fp8'");
  expect_refusal(kVgg + " --schedule 1f2b", "1f2b");
  expect_refusal(kVgg + " --placement 0:0.0:1 --stage-weights 1:2:3", "3 shares");
  expect_refusal("--model iresnet50 --cluster titanv-8 --head-parallel pfc --sample-rate 2",
                 "--sample-rate is 2");
  expect_refusal(kVgg + " --placement 0:0.0:1 --schedule gpipe --replicas roundrobin",
                 "goes with --schedule 1f1b");
  expect_refusal(kVgg + " --output /dev/null/plan.json", "--output");
  expect_refusal(kVgg + " --parallel hybrid", "--parallel hybrid cannot be predicted");
  expect_refusal(kVgg + " --parallel model", "--parallel model cannot be predicted");
  expect_refusal(kVgg + " --placement 0:0.0:1 --schedule zero-bubble",
                 "--schedule zero-bubble cannot be predicted");
  expect_refusal("--auto --model vgg16 --cluster titanv-8 --schedule zero-bubble",
                 "--schedule zero-bubble cannot be predicted");
  expect_refusal(kVgg + " --replicas roundrobin", "--replicas roundrobin is predicted for several");
}

class BenchPublishedTest : public ProgramTest {};

TEST_F(BenchPublishedTest, WritesTables) {
  const Outcome outcome =
      run("bench published --no-runs --no-exact --markdown table.md --summary table.json");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, read_text(work() / "table.md"));
  const Json table = Json::parse(read_text(work() / "table.json"));
  EXPECT_EQ(table["rows"].size(), 60u);
  EXPECT_LE(table["errors"]["all"]["median"].get<double>(), 0.08);
}

TEST_F(BenchPublishedTest, CompilesAndRunsTheRowsThatAreChosen) {
  const Outcome outcome = run("bench published --rows 24 --image 32 --steps 2 -o out");
  ASSERT_EQ(outcome.status, 0) << outcome.errors;
  EXPECT_THAT(outcome.errors, HasSubstr("row 1 of 1"));
  EXPECT_EQ(read_text(work() / "out" / "report.md"), outcome.output);
  EXPECT_THAT(read_text(work() / "out" / "index.html"), HasSubstr("Millrace MiB, exact"));
  const Json table = Json::parse(read_text(work() / "out" / "published.json"));
  ASSERT_EQ(table["rows"].size(), 1u);
  EXPECT_EQ(table["rows"][0]["row"], 24);
  EXPECT_GT(table["rows"][0]["exact_memory_mib"][0], 1000);
  EXPECT_GT(table["rows"][0]["run"]["samples_per_second"], 0) << table["rows"][0];
  expect_refusal("bench published --rows nothing --no-runs --no-exact", "--rows 'nothing'");
  expect_refusal("bench published --rows 3x-7 --no-runs --no-exact", "--rows");
  expect_refusal("bench published --split odd", "--split has no effect without --fit");
}

}  // namespace
}  // namespace millrace
