#include "base/parallel.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

TEST(Parallel, VisitsEveryIndexOnceForAnyTeam) {
  for (int threads : {1, 2, 3, 5}) {
    set_team_size(threads);
    for (int64_t count : {0, 1, 2, 3, 4, 7, 1000}) {
      std::vector<int> visits(static_cast<size_t>(count), 0);
      parallel_for(count, 0, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(count), 1)) << threads;
    }
  }
}

TEST(Parallel, SmallWorkStaysOnTheCaller) {
  set_team_size(4);
  int calls = 0;
  parallel_ranges(10, 10, [&](int thread, int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(thread, 0);
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 10);
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace millrace
