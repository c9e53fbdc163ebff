#include "parallel/plan_file.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "models/models.h"
#include "parallel/job_graphs.h"

namespace millrace::parallel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

PlanFile pipeline() {
  PlanFile file;
  file.plan.stages = parse_stages("0:0-6.0:7");
  file.plan.cut_after = {"features.30"};
  file.plan.schedule = ScheduleKind::zero_bubble;
  file.plan.micro_batches = 8;
  file.precision = graph::DataType::bf16;
  file.wire = graph::DataType::f32;
  file.recompute = passes::RecomputePolicy::cheap;
  file.head = PlannedHeadDivision{graph::HeadParallel::pfc, 0.25};
  file.made_for = {"vgg16", 28, "titanv-8"};
  return file;
}

TEST(PlanFileTest, EverythingComesBack) {
  const Json json = to_json(pipeline());
  EXPECT_EQ(json["version"], kPlanVersion);
  EXPECT_EQ(json["recompute"], "cheap");
  EXPECT_EQ(json["made_for"]["batch"], 28);
  const PlanFile back = parse_plan_file(Json::parse(json.dump()), "file");
  EXPECT_EQ(to_json(back), json);
  EXPECT_EQ(back.head->sample_rate, 0.25);
  EXPECT_EQ(back.plan.schedule, ScheduleKind::zero_bubble);
}

TEST(PlanFileTest, WhatIsNotSaidIsLeftToTheJob) {
  const PlanFile file = parse_plan_file(Json::parse(R"({"placement": "0:0.0:1"})"), "file");
  EXPECT_EQ(file.plan.stage_count(), 2);
  EXPECT_FALSE(file.precision || file.wire || file.recompute || file.head);
  EXPECT_TRUE(file.made_for.model.empty());
  EXPECT_EQ(file.made_for.batch, 0);
}

TEST(PlanFileTest, LayersAreDividedWithinOneStage) {
  Plan plan;
  plan.stages = parse_stages("0:0-1");
  plan.sharding.layers["fc"] = LayerSharding::split_output;
  EXPECT_NO_THROW(check(plan, 8));
  plan.stages = parse_stages("0:0-1.0:2-3");
  try {
    check(plan, 8);
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("divides the layer 'fc', which works within one stage"));
  }
}

TEST(PlanFileTest, EachMistakeHasItsSentence) {
  const auto expect = [](const char* text, const char* sentence) {
    try {
      parse_plan_file(Json::parse(text), "--plan 'p.json'");
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), StartsWith("--plan 'p.json'")) << text;
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
    }
  };
  expect("[]", "a plan is a JSON object");
  expect(R"({"version": 2})", "its version is 2; this program reads version 1");
  expect(R"({"precision": "fp8"})", "'precision' is 'fp8'; choose one of fp32, fp16, bf16");
  expect(R"({"recompute": 3})", "'recompute' is '3'; choose one of none, auto, cheap, all");
  expect(R"({"comm_dtype": "f"})", "'comm_dtype' is 'f'");
  expect(R"({"head": "mp"})", ", head must be a JSON object");
  expect(R"({"head": {}})", "'parallel' is missing");
  expect(R"({"head": {"parallel": "mp", "sample_rate": 0.1}})", "goes with \"parallel\": \"pfc\"");
  expect(R"({"head": {"parallel": "pfc", "sample_rate": 2}})", "'sample_rate' is 2");
  expect(R"({"head": {"parallel": "dp", "x": 1}})", "there is no field 'x'");
  expect(R"({"made_for": {"batch": 0}})", "'batch' is 0");
  expect(R"({"made_for": {"batch": 2.5}})", "'batch' is 2.5");
  expect(R"({"made_for": {"model": 1}})", "'model' must be a text");
  expect(R"({"placement": 7})", "'placement' has a value of the wrong kind");
  const char* whole = "where a whole number from 1 to";
  expect(R"({"microbatches": 2.5})", "'microbatches' has 2.5 where a whole number from 1 to");
  expect(R"({"microbatches": 1e30})", whole);
  expect(R"({"microbatches": "2"})", whole);
  expect(R"({"stage_weights": [1, -1]})", "'stage_weights' has -1 where a whole number from 1 to");
  expect(R"({"stage_weights": [1.5, 1]})", whole);
  expect(R"({"stage_weights": "1:1"})", "'stage_weights' has a value of the wrong kind");
  expect(R"({"stages": 2})", "there is no field 'stages'");
}

TEST(PlanFileTest, LayersThatAreDividedMustBeThere) {
  const graph::Graph network = models::build_model("alexnet", {.batch = 4});
  Plan plan;
  plan.sharding.layers["nosuch"] = LayerSharding::split_output;
  const auto error_of = [&] {
    try {
      JobGraphs graphs(network, plan);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(error_of(), HasSubstr("divides a layer 'nosuch', but no linear or convolution"));
  plan.stages.push_back(Placement{{DeviceId{0, 1}}});
  EXPECT_THAT(error_of(), HasSubstr("divides the layer 'nosuch', which works within one stage"));
}

}  // namespace
}  // namespace millrace::parallel
