// The suite with several members in each of several ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "comm/job_groups.h"
#include "member_runner.h"
#include "mpi_tests.h"

namespace millrace::comm {
namespace {

constexpr int kRanks = 2;

// Neighbours in the order of the members live in different ranks.
const std::vector<Member> kMembers = {{0, 0}, {1, 0}, {0, 1}, {1, 1}};

// Calls body(index of the handle) on a thread for each.
template <typename Body>
void on_threads(size_t handles, Body&& body) {
  std::vector<std::thread> threads;
  for (size_t index = 0; index < handles; ++index) {
    threads.emplace_back([&body, index] {
      set_team_size(1);
      body(index);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::vector<int> member_counts() { return {1, 2, 3, 4}; }

void run_members(int members, int groups, const std::function<void(std::vector<Group>&)>& body) {
  {
    JobGroups job({2, 2}, &test_session());
    const std::vector<Member> chosen(kMembers.begin(), kMembers.begin() + members);
    std::vector<std::vector<Group>> handles;  // by local member, then group
    for (int group = 0; group < groups; ++group) {
      const std::vector<Group> made = job.make(chosen);
      handles.resize(made.size());
      for (size_t i = 0; i < made.size(); ++i) handles[i].push_back(made[i]);
    }
    on_threads(handles.size(), [&](size_t index) { body(handles[index]); });
  }
  mpi_world(test_session()).barrier();
}

TEST(JobGroups, NamesDevicesRanksAndHosts) {
  JobGroups job({2, 2}, &test_session());
  EXPECT_EQ(job.rank(), test_session().rank());
  EXPECT_EQ(job.all().size(), 4u);
  std::vector<Group> groups = job.make(kMembers);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].rank(), 2 + job.rank());
  EXPECT_THAT(groups[0].name(3), ::testing::StartsWith("device 1:1 of rank 1 on host "));
}

TEST(JobGroups, ARankWithoutMembersGetsNoHandle) {
  JobGroups job({2, 2}, &test_session());
  EXPECT_EQ(job.make({{1, 1}, {1, 0}}).size(), job.rank() == 1 ? 2u : 0u);
}

TEST(JobGroups, MessagesBetweenAnyTwoDevicesFromManyThreads) {
  JobGroups job({2, 2}, &test_session());
  std::vector<Group> groups = job.make_for_messages(job.all());
  EXPECT_EQ(groups[0].buffer_bytes(), 0);
  on_threads(groups.size(), [&](size_t index) {
    Group& group = groups[index];
    on_threads(8, [&](size_t lane) {  // to and from each of the four
      const int other = static_cast<int>(lane / 2);
      if (other == group.rank()) return;
      for (int round = 0; round < 5; ++round) {
        std::vector<int32_t> data(20000, 100 * group.rank() + other);
        if (lane % 2 == 0) {
          group.send(other, std::span<const int32_t>(data), 9);
        } else {
          group.receive(other, std::span(data), 9);
          EXPECT_EQ(data[19999], 100 * other + group.rank());
        }
      }
    });
  });
  EXPECT_THROW(groups[0].all_reduce(std::span<float>()), JobError);
  mpi_world(test_session()).barrier();
}

TEST(JobGroups, StopEndsEveryGroupEverywhere) {
  JobGroups job({2, 2}, &test_session());
  std::vector<Group> first = job.make({{0, 0}, {1, 0}});
  std::vector<Group> second = job.make({{1, 1}, {0, 1}});
  if (job.rank() == 1) job.stop("rank 1 has had enough.");
  for (Group* group : {&first[0], &second[0]}) {
    try {
      std::vector<float> data(10);
      group->all_reduce(std::span(data));
      ADD_FAILURE() << "the group goes on";
    } catch (const JobError& error) {
      EXPECT_STREQ(error.what(), "rank 1 has had enough.");
    }
  }
  mpi_world(test_session()).barrier();
}

}  // namespace millrace::comm

int main(int argc, char** argv) {
  return millrace::comm::run_mpi_tests(argc, argv, millrace::comm::kRanks);
}
