#include "base/parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "base/task_thread.h"

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

size_t threads_here() {
  using Tasks = std::filesystem::directory_iterator;
  return static_cast<size_t>(std::distance(Tasks("/proc/self/task"), Tasks()));
}

// Else another library's team and this one together are more threads than there are cores.
TEST(Parallel, TeamOfAThreadThatHasNothingToDoIsGivenUpAndStartsAnew) {
  using namespace std::chrono_literals;
  TaskThread thread(end_team);
  thread.run([] { set_team_size(3); });
  const size_t before = threads_here();
  for (int turn = 0; turn < 2; ++turn) {
    thread.run([&] {
      parallel_for(3, 0, [](int64_t) {});
      EXPECT_EQ(threads_here(), before + 2);
    });
    for (int i = 0; i < 500 && threads_here() != before; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(threads_here(), before);
  }
}

}  // namespace
}  // namespace millrace
