#include "comm/job_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <thread>

#include "base/error.h"

namespace millrace::comm {
namespace {

using ::testing::ElementsAre;

TEST(JobGroups, OneProcessIsAJobOfItsDevices) {
  JobGroups job({3});
  EXPECT_EQ(job.ranks(), 1);
  EXPECT_THAT(job.all(), ElementsAre(Member{0, 0}, Member{0, 1}, Member{0, 2}));
  std::vector<Group> groups = job.make({{0, 2}, {0, 0}});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name(0), "device 0:2");
  std::vector<float> sums(2);
  std::thread other([&] {
    std::vector<float> data = {2.0f};
    groups[1].all_reduce(std::span(data));
    sums[1] = data[0];
  });
  std::vector<float> data = {3.0f};
  groups[0].all_reduce(std::span(data));
  sums[0] = data[0];
  other.join();
  EXPECT_THAT(sums, ElementsAre(5.0f, 5.0f));
}

TEST(JobGroups, StopEndsGroupsMadeBeforeAndAfter) {
  JobGroups job({2});
  std::vector<Group> before = job.make(job.all());
  job.stop("The disk is full.");
  job.stop("Something else.");
  std::vector<Group> after = job.make(job.all());
  EXPECT_EQ(job.failure(), "The disk is full.");
  for (Group* group : {&before[0], &before[1], &after[0]}) {
    try {
      group->barrier();
      ADD_FAILURE() << "the group goes on";
    } catch (const JobError& error) {
      EXPECT_STREQ(error.what(), "The disk is full.");
    }
  }
}

TEST(JobGroups, RefusesDevicesThatAreNotThere) {
  JobGroups job({2});
  for (const std::vector<Member>& members :
       {std::vector<Member>{}, {{0, 2}}, {{1, 0}}, {{0, -1}}, {{0, 1}, {0, 1}}}) {
    EXPECT_THROW(job.make(members), JobError);
  }
  EXPECT_THROW(JobGroups({1, 1}), JobError);
  EXPECT_THROW(JobGroups({0}), JobError);
}

}  // namespace
}  // namespace millrace::comm
