#include "base/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace millrace {
namespace {

std::vector<uint64_t> one_by_one(const Permutation& permutation, uint64_t count) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < count; ++i) values.push_back(permutation.at(i));
  return values;
}

TEST(Permutation, HasEachValueOnce) {
  for (const uint64_t count : {1u, 2u, 5u, 64u, 1000u, 4097u}) {
    std::vector<uint64_t> values = one_by_one(Permutation(count, 3), count);
    std::sort(values.begin(), values.end());
    std::vector<uint64_t> all(count);
    std::iota(all.begin(), all.end(), uint64_t{0});
    EXPECT_EQ(values, all) << count;
  }
}

TEST(Permutation, ListsWhatItHasAtEachPosition) {
  for (const uint64_t count : {1u, 2u, 5u, 64u, 1000u, 4097u}) {
    const Permutation permutation(count, 4);
    const std::vector<uint64_t> expected = one_by_one(permutation, count);
    for (const uint64_t first : {uint64_t{0}, count / 3, count - 1}) {
      std::vector<uint64_t> values(count - first);
      permutation.list(first, values);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), expected.begin() + first))
          << count << " " << first;
    }
  }
}

}  // namespace
}  // namespace millrace
