// Sums of floats that travel in 16 bits, on every transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/half.h"
#include "group_values.h"
#include "member_runner.h"

namespace millrace::comm {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<int64_t> kCounts = {0, 1, 2, 3, 17, 1000, 65537};

float rounded(float value, Wire wire) {
  if (wire == Wire::full) return value;
  return wire == Wire::f16 ? from_f16(to_f16(value)) : from_bf16(to_bf16(value));
}

// Within the range of half precision, denormals among them.
std::vector<float> terms_of(int member, int64_t count) {
  std::vector<float> terms = values_of<float>(member, count, 0);
  for (size_t i = 0; i < terms.size(); ++i) {
    terms[i] *= i % 5 == 0 ? 0x1p-40f : 0x1p-10f;
  }
  return terms;
}

std::vector<float> rounded_sums(int members, int64_t count, Wire wire) {
  std::vector<float> sums(static_cast<size_t>(count), 0.0f);
  for (int member = 0; member < members; ++member) {
    const std::vector<float> terms = terms_of(member, count);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float term = rounded(terms[i], wire);
      sums[i] = member == 0 ? term : sums[i] + term;
    }
  }
  for (float& sum : sums) sum = rounded(sum, wire);
  return sums;
}

template <typename Body>
void with_every_wire(Body&& body) {
  for (const int members : member_counts()) {
    run_members(members, 1, [&](std::vector<Group>& groups) {
      for (const Wire wire : {Wire::f16, Wire::bf16, Wire::full}) {
        SCOPED_TRACE(testing::Message() << members << " members, wire " << static_cast<int>(wire));
        body(groups[0], wire);
      }
    });
  }
}

TEST(NarrowedSums, AllReduceRoundsTermsAndSums) {
  with_every_wire([](Group& group, Wire wire) {
    for (const int64_t count : kCounts) {
      std::vector<float> data = terms_of(group.rank(), count);
      group.all_reduce(std::span(data), wire);
      EXPECT_TRUE(same_bits(data, rounded_sums(group.size(), count, wire))) << count;
    }
  });
}

// More chunks than are on their way at once.
TEST(NarrowedSums, LongBuffersTravelInPieces) {
  const std::vector<int> counts = member_counts();
  const int members = *std::find_if(counts.begin(), counts.end(), [](int n) { return n > 2; });
  const int64_t count = 1200007 * members;
  const auto term = [](int member, int64_t i) {
    return 0.37f * static_cast<float>(i % 1009) + static_cast<float>(member);
  };
  run_members(members, 1, [&](std::vector<Group>& groups) {
    for (const Wire wire : {Wire::f16, Wire::bf16}) {
      std::vector<float> data(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) data[static_cast<size_t>(i)] = term(groups[0].rank(), i);
      groups[0].all_reduce(std::span(data), wire);
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        float sum = rounded(term(0, i), wire);
        for (int member = 1; member < members; ++member) sum += rounded(term(member, i), wire);
        wrong += data[static_cast<size_t>(i)] == rounded(sum, wire) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0);
    }
  });
}

TEST(NarrowedSums, ReduceScatterLeavesPartsOfTheSameSums) {
  with_every_wire([](Group& group, Wire wire) {
    for (const int64_t count : kCounts) {
      for (const int64_t block : {int64_t{1}, int64_t{7}}) {
        const int64_t elements = count / 7 * 7;
        const auto begin = static_cast<size_t>(group.part_begin(elements, group.rank(), block));
        const auto size = static_cast<size_t>(group.part_size(elements, group.rank(), block));
        const std::vector<float> sums = rounded_sums(group.size(), elements, wire);
        const auto first = sums.begin() + static_cast<ptrdiff_t>(begin);
        const std::vector<float> expected(first, first + static_cast<ptrdiff_t>(size));
        std::vector<float> whole = terms_of(group.rank(), elements);
        const std::vector<float> before = whole;
        std::vector<float> part(size);
        group.reduce_scatter(std::span<const float>(whole), std::span(part), block, wire);
        EXPECT_TRUE(same_bits(part, expected)) << count;
        EXPECT_TRUE(same_bits(whole, before)) << count;
        const std::span<float> place = std::span(whole).subspan(begin, size);
        group.reduce_scatter(std::span<const float>(whole), place, block, wire);
        EXPECT_TRUE(same_bits(std::vector<float>(place.begin(), place.end()), expected)) << count;
      }
    }
  });
}

TEST(NarrowedSums, InfinitiesSurviveAndTooLargeSumsBecomeInfinite) {
  with_every_wire([](Group& group, Wire wire) {
    const bool first = group.rank() == 0;
    const float large = wire == Wire::f16 ? 40000.0f : 3e38f;
    std::vector<float> data = {first ? kInfinity : 1.0f, first ? -kInfinity : 1.0f,
                               first ? std::nanf("") : 1.0f, large};
    group.all_reduce(std::span(data), wire);
    EXPECT_EQ(data[0], kInfinity);
    EXPECT_EQ(data[1], -kInfinity);
    EXPECT_TRUE(std::isnan(data[2]));
    if (group.size() > 1) {
      EXPECT_EQ(data[3], kInfinity);
    }
    if (wire == Wire::f16) {
      std::vector<float> beyond = {70000.0f};
      group.all_reduce(std::span(beyond), wire);
      EXPECT_EQ(beyond[0], kInfinity);
    }
  });
}

TEST(NarrowedSums, CountTheBytesThatTravel) {
  const int members = member_counts().back();
  run_members(members, 1, [&](std::vector<Group>& groups) {
    std::vector<float> data(static_cast<size_t>(100 * members));
    std::vector<float> part(100);
    groups[0].all_reduce(std::span(data), Wire::f16);
    groups[0].reduce_scatter(std::span<const float>(data), std::span(part), 1, Wire::bf16);
    const GroupStatistics statistics = groups[0].statistics();
    EXPECT_EQ(statistics.of(Operation::all_reduce).bytes, 400 * (members - 1));
    EXPECT_EQ(statistics.of(Operation::reduce_scatter).bytes, 200 * (members - 1));
  });
}

}  // namespace
}  // namespace millrace::comm
