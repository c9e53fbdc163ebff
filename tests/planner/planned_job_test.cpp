#include "planner/cost/planned_job.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "made_up.h"
#include "parallel/partition.h"

namespace millrace::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_refusal(const std::string& placement, const std::string& part) {
  try {
    devices_on(parallel::parse_stages(placement), 2, 8, "‹placement›");
    ADD_FAILURE() << "accepted: " << placement;
  } catch (const InputError& error) {
    EXPECT_THAT(error.marked(), HasSubstr("‹placement›"));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(PlannedJobTest, StagesAreReadAndWritten) {
  const auto stages = devices_on(parallel::parse_stages("0:0-6.0:7"), 1, 8, "--placement");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_THAT(stages[0], ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(stages[1], ElementsAre(7));
  for (const char* text : {"0:0-6.0:7", "0:0-7,1:0-7.0:0-7,1:0-7", "0:1,0:3.1:0,1:2-4", "1:7"}) {
    std::vector<PlannedStage> planned;
    for (auto& devices : devices_on(parallel::parse_stages(text), 2, 8, "--placement"))
      planned.push_back({devices});
    EXPECT_EQ(format_stages(planned, 8), text);
  }
}

TEST(PlannedJobTest, PlacementsThatMakeNoSenseAreRefused) {
  expect_refusal("", "placement");
  expect_refusal("0:8", "names device 0:8, but there are 2 machines of 8 devices");
  expect_refusal("2:0", "names device 2:0");
  expect_refusal("0:0-3,0:3", "placement");
}

TEST(PlannedJobTest, SharesCountOperatorsWithWeights) {
  const NetworkWork network = made_up::network(std::vector<double>(18, 1.0));
  EXPECT_THAT(cut_by_operators(network, {11, 7}, "--stage-weights"), ElementsAre(11, 18));
  EXPECT_THAT(cut_by_operators(network, {1, 1, 1}, "--stage-weights"), ElementsAre(6, 12, 18));
  EXPECT_THROW(cut_by_operators(network, {1, 1000}, "--stage-weights"), InputError);
}

// The operators that OneFlow counts in VGG-16 are convolutions and linear layers with what follows
// each: 11 of 18 shares end behind the tenth convolution.
TEST(PlannedJobTest, SharesOfVgg) {
  const NetworkWork network = work_of("vgg16", models::default_options("vgg16"));
  const std::vector<int> ends = cut_by_operators(network, {11, 7}, "--stage-weights");
  int convolutions = 0;
  for (int i = 0; i < ends[0]; ++i) convolutions += network.layers[i].type == "convolution";
  EXPECT_EQ(convolutions, 10);
}

// The same operators as where the graph itself is divided.
TEST(PlannedJobTest, SharesAreThoseOfThePartition) {
  for (const char* model : {"alexnet", "vgg16", "resnet50"}) {
    const models::ModelOptions options = models::default_options(model);
    const NetworkWork network = work_of(model, options);
    const graph::Graph graph = models::build_model(model, options);
    std::map<std::string, int> layer_of;
    for (size_t i = 0; i < network.layers.size(); ++i) {
      layer_of[network.layers[i].name] = static_cast<int>(i);
    }
    for (const char* weights : {"1:1", "3:1", "10:1", "11:7", "1:10", "2:5"}) {
      const std::vector<int64_t> shares = parallel::parse_stage_weights(weights, "--stage-weights");
      const int end = cut_by_operators(network, shares, "--stage-weights")[0];
      const std::vector<int> stages = parallel::assign_by_share(graph, shares);
      for (const graph::OperatorId id : graph.order()) {
        const auto found = layer_of.find(graph.op(id).name);
        if (found == layer_of.end()) continue;
        EXPECT_EQ(stages[static_cast<size_t>(id)], found->second < end ? 0 : 1)
            << model << " " << weights << " " << found->first;
      }
    }
  }
}

TEST(PlannedJobTest, CutsByName) {
  const NetworkWork network = work_of("resnet18", models::default_options("resnet18"));
  const std::vector<int> ends = cut_after(network, {"maxpool", "layer2"}, "--cut-after");
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(network.layers[ends[0] - 1].name, "maxpool");
  EXPECT_THAT(network.layers[ends[1] - 1].name, HasSubstr("layer2."));
  for (const auto& bad : {std::vector<std::string>{"layer9"}, {"layer2", "layer1"}, {"loss"}}) {
    EXPECT_THROW(cut_after(network, bad, "--cut-after"), InputError);
  }
}

TEST(PlannedJobTest, PlansCanBeReadBack) {
  const NetworkWork network = work_of("vgg16", models::default_options("vgg16"));
  PlannedJob job;
  job.stages = {{{0, 1, 2}, 0, 20}, {{8}, 20, static_cast<int>(network.layers.size())}};
  job.schedule = parallel::ScheduleKind::two_bw;
  job.micro_batches = 4;
  const parallel::Plan plan =
      parallel::parse_plan(parallel::to_json(plan_of(network, job, 8)), "plan");
  EXPECT_EQ(parallel::to_string(plan.stages), "0:0-2.1:0");
  EXPECT_EQ(plan.schedule, parallel::ScheduleKind::two_bw);
  EXPECT_EQ(plan.micro_batches, 4);
  EXPECT_THAT(plan.cut_after, ElementsAre(network.layers[19].name));
  const std::vector<int> stages = parallel::assign_after(
      models::build_model("vgg16", models::default_options("vgg16")), plan.cut_after);
  EXPECT_EQ(std::count(stages.begin(), stages.end(), 0), 20);
}

TEST(PlannedJobTest, SamplesOfAStep) {
  PlannedJob job = made_up::straight(2, 4);
  job.batch = 28;
  job.stages[0].devices = {0, 1, 2, 3, 4, 5, 6};
  job.stages[1].devices = {7};
  EXPECT_EQ(job.devices(), 8);
  EXPECT_DOUBLE_EQ(job.samples_per_step(), 224);
  job.round_robin = true;
  EXPECT_DOUBLE_EQ(job.samples_per_step(), 28);
  job.stages[1].devices = job.stages[0].devices;
  EXPECT_EQ(job.devices(), 7);
}

}  // namespace
}  // namespace millrace::planner
