#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <thread>

#include "comm/texts.h"
#include "group_values.h"
#include "member_runner.h"

namespace millrace::comm {
namespace {

const std::vector<int64_t> kCounts = {0, 1, 2, 3, 17, 1000, 65537};

template <typename T>
class Collectives : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, double, int32_t>;
TYPED_TEST_SUITE(Collectives, ElementTypes);

template <typename Body>
void with_every_size(Body&& body) {
  for (const int members : member_counts()) {
    run_members(members, 1, [&](std::vector<Group>& groups) {
      ASSERT_EQ(groups[0].size(), members);
      for (const int64_t count : kCounts) {
        SCOPED_TRACE(testing::Message() << members << " members, " << count << " elements");
        body(groups[0], count);
      }
    });
  }
}

TYPED_TEST(Collectives, AllReduceIsTheSumInTheOrderOfTheMembers) {
  with_every_size([](Group& group, int64_t count) {
    for (int round = 0; round < 3; ++round) {
      std::vector<TypeParam> data = values_of<TypeParam>(group.rank(), count, round);
      group.all_reduce(std::span(data));
      EXPECT_TRUE(same_bits(data, sums_of<TypeParam>(group.size(), count, round)));
    }
  });
}

TYPED_TEST(Collectives, ReduceScatterLeavesTheOwnPart) {
  with_every_size([](Group& group, int64_t count) {
    const auto begin = group.part_begin(count, group.rank());
    const auto size = group.part_size(count, group.rank());
    const std::vector<TypeParam> sums = sums_of<TypeParam>(group.size(), count, 0);
    const std::vector<TypeParam> expected(sums.begin() + begin, sums.begin() + begin + size);
    std::vector<TypeParam> whole = values_of<TypeParam>(group.rank(), count, 0);
    const std::vector<TypeParam> before = whole;
    std::vector<TypeParam> part(static_cast<size_t>(size));
    group.reduce_scatter(std::span<const TypeParam>(whole), std::span(part));
    EXPECT_TRUE(same_bits(part, expected));
    EXPECT_TRUE(same_bits(whole, before));

    const std::span<TypeParam> place =
        std::span(whole).subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
    group.reduce_scatter(std::span<const TypeParam>(whole), place);
    EXPECT_TRUE(same_bits(std::vector<TypeParam>(place.begin(), place.end()), expected));
  });
}

TYPED_TEST(Collectives, AllGatherCollectsTheParts) {
  with_every_size([](Group& group, int64_t count) {
    const std::vector<TypeParam> expected = values_of<TypeParam>(9, count, 0);
    const auto begin = expected.begin() + group.part_begin(count, group.rank());
    const std::vector<TypeParam> part(begin, begin + group.part_size(count, group.rank()));
    std::vector<TypeParam> whole(expected.size());
    group.all_gather(std::span<const TypeParam>(part), std::span(whole));
    EXPECT_TRUE(same_bits(whole, expected));

    std::fill(whole.begin(), whole.end(), TypeParam{});
    const std::span<TypeParam> place = std::span(whole).subspan(
        static_cast<size_t>(group.part_begin(count, group.rank())), part.size());
    std::copy(part.begin(), part.end(), place.begin());
    group.all_gather(std::span<const TypeParam>(place), std::span(whole));
    EXPECT_TRUE(same_bits(whole, expected));
  });
}

TYPED_TEST(Collectives, PartsOfReduceScatterAreWholeBlocks) {
  with_every_size([](Group& group, int64_t count) {
    for (const int64_t block : {int64_t{1}, int64_t{5}, int64_t{64}}) {
      const int64_t elements = count / 64 * 64 * 5;
      const int64_t blocks = elements / block;
      const int64_t begin = blocks * group.rank() / group.size() * block;
      const int64_t end = blocks * (group.rank() + 1) / group.size() * block;
      EXPECT_EQ(group.part_begin(elements, group.rank(), block), begin);
      const std::vector<TypeParam> whole = values_of<TypeParam>(group.rank(), elements, 0);
      const std::vector<TypeParam> sums = sums_of<TypeParam>(group.size(), elements, 0);
      std::vector<TypeParam> part(static_cast<size_t>(end - begin));
      group.reduce_scatter(std::span<const TypeParam>(whole), std::span(part), block);
      EXPECT_TRUE(
          same_bits(part, std::vector<TypeParam>(sums.begin() + begin, sums.begin() + end)));

      std::vector<TypeParam> gathered(whole.size());
      group.all_gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(gathered)),
                       block * static_cast<int64_t>(sizeof(TypeParam)));
      EXPECT_TRUE(same_bits(gathered, sums));
    }
  });
}

TYPED_TEST(Collectives, BroadcastCopiesTheRoot) {
  with_every_size([](Group& group, int64_t count) {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<TypeParam> data = values_of<TypeParam>(group.rank(), count, 0);
      group.broadcast(std::span(data), root);
      EXPECT_TRUE(same_bits(data, values_of<TypeParam>(root, count, 0)));
    }
  });
}

TEST(Group, LongBuffersTravelInPieces) {
  constexpr int64_t kCount = 1000003;
  const int members = member_counts().back();
  const std::vector<double> sums = sums_of<double>(members, kCount, 0);
  run_members(members, 1, [&](std::vector<Group>& groups) {
    Group& group = groups[0];
    const auto begin = static_cast<size_t>(group.part_begin(kCount, group.rank()));
    const auto size = static_cast<size_t>(group.part_size(kCount, group.rank()));
    const std::vector<double> own = values_of<double>(group.rank(), kCount, 0);
    std::vector<double> data = own;
    group.all_reduce(std::span(data));
    EXPECT_TRUE(same_bits(data, sums));
    std::vector<double> part(size);
    group.reduce_scatter(std::span<const double>(own), std::span(part));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), sums.begin() + static_cast<int64_t>(begin)));
    std::vector<double> whole(kCount);
    group.all_gather(std::span<const double>(part), std::span(whole));
    EXPECT_TRUE(same_bits(whole, sums));
    data = own;
    group.broadcast(std::span(data), members - 1);
    EXPECT_TRUE(same_bits(data, values_of<double>(members - 1, kCount, 0)));
  });
}

TEST(Group, IntegersWrapAround) {
  run_members(member_counts().back(), 1, [](std::vector<Group>& groups) {
    std::vector<int32_t> data = {INT32_MAX};
    groups[0].all_reduce(std::span(data));
    EXPECT_EQ(data[0], static_cast<int32_t>(static_cast<uint32_t>(INT32_MAX) *
                                            static_cast<uint32_t>(groups[0].size())));
  });
}

TEST(Group, PartsCoverTheWholeEvenly) {
  run_members(member_counts().back(), 1, [](std::vector<Group>& groups) {
    const Group& group = groups[0];
    for (const int64_t count : {int64_t{0}, int64_t{5}, int64_t{1000}, int64_t{1} << 61}) {
      int64_t end = 0;
      for (int member = 0; member < group.size(); ++member) {
        EXPECT_EQ(group.part_begin(count, member), end);
        end += group.part_size(count, member);
        EXPECT_LE(group.part_size(count, member), count / group.size() + 1);
      }
      EXPECT_EQ(end, count);
    }
  });
}

TEST(Group, GroupsOfTheSameMembersRunAtTheSameTime) {
  constexpr int kGroups = 3;
  const int members = member_counts().back();
  run_members(members, kGroups, [&](std::vector<Group>& groups) {
    std::vector<std::thread> threads;
    for (int index = 0; index < kGroups; ++index) {
      threads.emplace_back([&groups, index] {
        Group& group = groups[static_cast<size_t>(index)];
        for (int round = 0; round < 20; ++round) {
          const int64_t count = 1000 * index + 37 * round;
          std::vector<float> data = values_of<float>(group.rank(), count, round);
          group.all_reduce(std::span(data));
          EXPECT_TRUE(same_bits(data, sums_of<float>(group.size(), count, round)));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(Group, CountsBytesCallsAndWaiting) {
  const int members = member_counts().back();
  run_members(members, 1, [&](std::vector<Group>& groups) {
    Group group = groups[0];
    std::vector<float> data(static_cast<size_t>(100 * members));
    group.all_reduce(std::span(data));
    if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    group.barrier();
    const GroupStatistics statistics = groups[0].statistics();
    EXPECT_EQ(statistics.of(Operation::all_reduce).calls, 1);
    EXPECT_EQ(statistics.of(Operation::all_reduce).bytes, 800 * (members - 1));
    EXPECT_EQ(statistics.total().calls, 2);
    if (group.rank() == 1) {
      EXPECT_GT(statistics.of(Operation::barrier).seconds_waited, 0.05);
    }
  });
}

TEST(Group, MessagesArriveInOrderAndByTag) {
  for (const int members : member_counts()) {
    if (members == 1) continue;
    run_members(members, 1, [&](std::vector<Group>& groups) {
      Group& group = groups[0];
      const int last = members - 1;
      for (const int64_t count : kCounts) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> data = values_of<float>(group.rank(), count, round);
          if (group.rank() == 0) group.send(last, std::span<const float>(data), round % 2);
          if (group.rank() == last) {
            group.receive(0, std::span(data), round % 2);
            EXPECT_TRUE(same_bits(data, values_of<float>(0, count, round)));
          }
        }
      }
      std::vector<double> other = {group.rank() + 0.5};
      std::thread sender([&] {
        if (group.rank() == 0) group.send(last, std::span<const double>(other), 7);
      });
      std::vector<int32_t> token = {group.rank()};
      if (group.rank() == 0) group.send(last, std::span<const int32_t>(token), 8);
      if (group.rank() == last) {
        group.receive(0, std::span(token), 8);
        group.receive(0, std::span(other), 7);
        EXPECT_EQ(token[0], 0);
        EXPECT_EQ(other[0], 0.5);
      }
      sender.join();
    });
  }
}

TEST(Texts, AreCollectedWhateverTheirLength) {
  constexpr size_t kLong = (size_t{65} << 20) + 3;  // more than gather_texts takes
  for (const int members : member_counts()) {
    if (members > 3) continue;
    run_members(members, 1, [&](std::vector<Group>& groups) {
      Group& group = groups[0];
      const auto text_of = [&](int member) {
        const size_t length = member == 0 ? 7 : member == 1 ? kLong : 0;
        return std::string(length, static_cast<char>('a' + member));
      };
      const std::vector<std::string> texts = collect_texts(group, text_of(group.rank()), 0);
      ASSERT_EQ(texts.size(), group.rank() == 0 ? static_cast<size_t>(members) : 0U);
      for (size_t member = 0; member < texts.size(); ++member) {
        EXPECT_TRUE(texts[member] == text_of(static_cast<int>(member))) << member;
      }
    });
  }
}

}  // namespace
}  // namespace millrace::comm
