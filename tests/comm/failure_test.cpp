#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <thread>

#include "base/error.h"
#include "member_runner.h"

namespace millrace::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The sentence that `body` throws as a JobError, or an empty one.
template <typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const JobError& error) {
    return error.what();
  }
  return "";
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(GroupFailure, EndsAPendingCallOfEveryOtherMember) {
  run_members(member_counts().back(), 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    group.barrier();
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      group.fail("out of memory in convolution 3");
    }
    const Clock::time_point start = Clock::now();
    std::vector<float> data(1000, 1.0f);
    const std::string error = error_of([&] { group.all_reduce(std::span(data)); });
    EXPECT_THAT(error,
                AllOf(HasSubstr(group.name(1)), HasSubstr("out of memory in convolution 3")));
    EXPECT_LT(seconds_since(start), 1.2);
  });
}

TEST(GroupFailure, EndsTheNextCallWhateverItIs) {
  run_members(member_counts().back(), 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    group.barrier();
    const int next = (group.rank() + 1) % group.size();
    // Some may still be on their way out of the barrier.
    std::this_thread::sleep_for(std::chrono::milliseconds(group.rank() == 1 ? 200 : 400));
    if (group.rank() == 1) group.fail("disk full");
    std::vector<float> data(10);
    EXPECT_THAT(error_of([&] { group.broadcast(std::span(data), 0); }), HasSubstr("disk full"));
    EXPECT_THAT(error_of([&] { group.receive(next, std::span(data), 3); }), HasSubstr("disk full"));
    EXPECT_THAT(error_of([&] { group.send(next, std::span<const float>(data), 3); }),
                AllOf(HasSubstr("disk full"), HasSubstr(group.name(1))));
    EXPECT_THAT(error_of([&] { group.barrier(); }), HasSubstr("disk full"));
  });
}

TEST(GroupFailure, EndsAPendingReceive) {
  run_members(2, 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    std::vector<float> data(10);
    if (group.rank() == 0) {
      EXPECT_THAT(error_of([&] { group.receive(1, std::span(data), 0); }), HasSubstr("no luck"));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.fail("no luck");
    }
  });
}

TEST(GroupFailure, LeavesOtherGroupsAlone) {
  run_members(2, 2, [](std::vector<Group>& groups) {
    if (groups[0].rank() == 0) groups[0].fail("only this one");
    std::vector<float> data = {1.0f};
    groups[1].all_reduce(std::span(data));
    EXPECT_EQ(data[0], 2.0f);
    EXPECT_THAT(error_of([&] { groups[0].barrier(); }), HasSubstr("only this one"));
  });
}

TEST(GroupFailure, DeadlineNamesWhoIsMissing) {
  run_members(member_counts().back(), 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    group.barrier();
    if (group.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      EXPECT_NE(error_of([&] { group.barrier(); }), "");
      return;
    }
    group.set_deadline(0.3);
    const Clock::time_point start = Clock::now();
    std::vector<float> data(100);
    const std::string error = error_of([&] { group.all_reduce(std::span(data)); });
    EXPECT_THAT(error, AllOf(HasSubstr(group.name(1)), HasSubstr("all_reduce")));
    EXPECT_LT(seconds_since(start), 1.4);
  });
}

TEST(GroupFailure, MessagesOfDifferentSizesAreRefused) {
  run_members(2, 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    std::vector<float> data(10);
    if (group.rank() == 0) {
      error_of([&] { group.send(1, std::span<const float>(data).first(4), 0); });
    } else {
      EXPECT_THAT(error_of([&] { group.receive(0, std::span(data), 0); }), HasSubstr("16"));
    }
  });
}

TEST(GroupFailure, WrongArgumentsAreRefused) {
  run_members(2, 1, [](std::vector<Group>& groups) {
    Group& group = groups[0];
    std::vector<float> data(10);
    const std::span<const float> constant(data);
    EXPECT_THAT(error_of([&] { group.broadcast(std::span(data), 2); }), HasSubstr("member 2"));
    EXPECT_THAT(error_of([&] { group.send(group.rank(), constant, 0); }), HasSubstr("itself"));
    EXPECT_THAT(error_of([&] { group.send(-1, constant, 0); }), HasSubstr("member -1"));
    EXPECT_THAT(error_of([&] { group.send(1 - group.rank(), constant, -1); }), HasSubstr("tag -1"));
    EXPECT_THAT(error_of([&] { group.reduce_scatter(constant, std::span(data)); }),
                HasSubstr("10"));
    EXPECT_THAT(error_of([&] { group.reduce_scatter(constant, std::span(data), 3); }),
                HasSubstr("whole blocks of 3"));
    EXPECT_THAT(error_of([&] { group.reduce_scatter(constant, std::span(data), 0); }),
                HasSubstr("whole blocks of 0"));
  });
}

}  // namespace
}  // namespace millrace::comm
