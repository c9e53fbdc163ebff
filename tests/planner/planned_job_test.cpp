#include "planner/cost/planned_job.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "made_up.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void expect_refusal(const std::string& placement, const std::string& part) {
  try {
    parse_stages(placement, 2, 8, "--placement");
    ADD_FAILURE() << "accepted: " << placement;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--placement"));
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(PlannedJobTest, StagesAreReadAndWritten) {
  const auto stages = parse_stages("0:0-6.0:7", 1, 8, "--placement");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_THAT(stages[0], ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(stages[1], ElementsAre(7));
  for (const char* text : {"0:0-6.0:7", "0:0-7,1:0-7.0:0-7,1:0-7", "0:1,0:3.1:0,1:2-4", "1:7"}) {
    std::vector<PlannedStage> planned;
    for (auto& devices : parse_stages(text, 2, 8, "--placement")) planned.push_back({devices});
    EXPECT_EQ(format_stages(planned, 8), text);
  }
}

TEST(PlannedJobTest, PlacementsThatMakeNoSenseAreRefused) {
  expect_refusal("", "MACHINE:DEVICE");
  expect_refusal("0", "MACHINE:DEVICE");
  expect_refusal("0:8", "2 machines of 8 devices");
  expect_refusal("2:0", "2 machines of 8 devices");
  expect_refusal("0:5-3", "counted from 0");
  expect_refusal("0:0-3,0:3", "0:3 twice");
  expect_refusal("0:x", "not a whole number");
  expect_refusal("0:99999999999999999999", "not a whole number");
  expect_refusal("0:-1", "not a whole number");
  expect_refusal("0:0..0:1", "MACHINE:DEVICE");
}

TEST(PlannedJobTest, SharesCountOperatorsWithWeights) {
  const NetworkWork network = made_up::network(std::vector<double>(18, 1.0));
  EXPECT_THAT(cut_by_operators(network, "11:7", 2, "--stage-weights"), ElementsAre(11, 18));
  EXPECT_THAT(cut_by_operators(network, "1:1:1", 3, "--stage-weights"), ElementsAre(6, 12, 18));
  for (const char* bad : {"11", "0:1", "1:x", "1:2:3", ""}) {
    EXPECT_THROW(cut_by_operators(network, bad, 2, "--stage-weights"), InputError) << bad;
  }
}

// The operators that OneFlow counts in VGG-16 are convolutions and linear layers with what follows
// each: 11 of 18 shares end behind the tenth convolution.
TEST(PlannedJobTest, SharesOfVgg) {
  const NetworkWork network = work_of("vgg16", default_options("vgg16"));
  const std::vector<int> ends = cut_by_operators(network, "11:7", 2, "--stage-weights");
  int convolutions = 0;
  for (int i = 0; i < ends[0]; ++i) convolutions += network.layers[i].type == "convolution";
  EXPECT_EQ(convolutions, 10);
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
}  // namespace millrace
