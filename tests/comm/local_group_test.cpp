#include "comm/local_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "base/error.h"
#include "member_runner.h"

namespace millrace::comm {
namespace {

TEST(LocalGroup, DifferentCallsFailEveryMember) {
  run_members(3, 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    std::vector<float> data(group.rank() == 2 ? 5 : 4);
    try {
      group.all_reduce(std::span(data));
      ADD_FAILURE() << "counts that differ were accepted";
    } catch (const JobError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("member 2 calls all_reduce of 5"));
    }
  });
}

TEST(LocalGroup, TakesNames) {
  const std::vector<Group> groups = make_local_groups(2, {"device 0:0", "device 0:3"});
  EXPECT_EQ(groups[0].name(1), "device 0:3");
  EXPECT_EQ(groups[1].rank(), 1);
}

TEST(LocalGroup, NeedsAMember) { EXPECT_THROW(make_local_groups(0), JobError); }

}  // namespace
}  // namespace millrace::comm
