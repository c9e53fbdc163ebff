#include "parallel/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"

namespace millrace::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Placement, NamesDevicesInOrder) {
  const Placement placement = parse_stages("1:2-4,0:0").at(0);
  EXPECT_THAT(placement.devices,
              ElementsAre(DeviceId{1, 2}, DeviceId{1, 3}, DeviceId{1, 4}, DeviceId{0, 0}));
  EXPECT_EQ(to_string(placement), "1:2-4,0:0");
}

TEST(Placement, StagesAreJoinedByDots) {
  const auto stages = parse_stages("0:0-6.0:7");
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].size(), 7);
  EXPECT_THAT(stages[1].devices, ElementsAre(DeviceId{0, 7}));
  EXPECT_EQ(to_string(stages), "0:0-6.0:7");
  EXPECT_EQ(to_string(parse_stages("0:0-7,1:0-7.0:0-7,1:0-7")), "0:0-7,1:0-7.0:0-7,1:0-7");
}

TEST(Placement, IsPrintedInTheShortestWay) {
  EXPECT_EQ(to_string(parse_stages("0:0-6,1:0-7")), "0:0-6,1:0-7");
  EXPECT_EQ(to_string(parse_stages("0:0,0:1,0:2,1:3-3,0:3")), "0:0-2,1:3,0:3");
  EXPECT_EQ(to_string(parse_stages("0:2,0:1,0:0")), "0:2,0:1,0:0");
  EXPECT_EQ(to_string(parse_stages("007:01")), "7:1");
}

TEST(Placement, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "placement is empty; name devices as node:devices"},
      {"0", "placement lacks a ':' at character 2"},
      {"0:", "lacks a device number at character 3"},
      {":0", "lacks a node number at character 1"},
      {"0:0-", "lacks a device number at character 5"},
      {"0:0,", "lacks a node number at character 5"},
      {"0:0.", "lacks a node number at character 5"},
      {"0:0..1:0", "lacks a node number at character 5"},
      {"0:0 ", "has unexpected text at character 4"},
      {"0:0-3-5", "has unexpected text at character 6"},
      {"0:-1", "lacks a device number at character 3"},
      {"0:5-2", "runs backwards at character 3; write 2-5"},
      {"0:0-3,0:2", "names device 0:2 a second time at character 9"},
      {"0:99999999999999999999", "has a device number that is too large at character 3"},
      {"5000:0", "has a node number that is too large at character 1; numbers go up to 4095"},
  };
  for (const auto& [text, sentence] : cases) {
    try {
      parse_stages(text);
      ADD_FAILURE() << "'" << text << "' is taken";
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
    }
  }
  EXPECT_THROW(parse_stages(std::string_view("0:0\0", 4)), InputError);
}

TEST(Placement, TakesAnyBytes) {
  const Random random(3, 1);
  const std::string_view likely = "0123456789:-,.\xff \n";
  uint64_t draw = 0;
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(random.below(draw++, 9), ' ');
    for (char& c : text) c = likely[random.below(draw++, likely.size())];
    try {
      const auto stages = parse_stages(text);
      EXPECT_EQ(parse_stages(to_string(stages)), stages) << text;
      ++taken;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(taken, 20);
}

}  // namespace
}  // namespace millrace::parallel
