#include "backend/device.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "backend/cpu/cores.h"
#include "base/parallel.h"

namespace millrace {
namespace {

TEST(Device, RunsOnItsOwnThreadAndHandsErrorsBack) {
  Device device({.threads = 1});
  std::thread::id inside;
  device.run([&] { inside = std::this_thread::get_id(); });
  EXPECT_NE(inside, std::this_thread::get_id());
  EXPECT_THROW(device.run([] { throw std::runtime_error("broken"); }), std::runtime_error);
  int after = 0;
  device.run([&] { after = 1; });
  EXPECT_EQ(after, 1);
}

TEST(Device, TeamHasTheSizeAskedForAndIsPinned) {
  const int cores = available_cores();
  Device device({.threads = cores});
  std::set<int> used;
  device.run([&] {
    EXPECT_EQ(team_size(), cores);
    std::vector<int> where(static_cast<size_t>(cores), -1);
    parallel_ranges(cores, 0, [&](int thread, int64_t, int64_t) {
      where[static_cast<size_t>(thread)] = ::sched_getcpu();
    });
    used.insert(where.begin(), where.end());
  });
  EXPECT_EQ(static_cast<int>(used.size()), cores);
}

TEST(Device, TeamIsPinnedToTheCoresGiven) {
  const int core = usable_cores().back();
  Device device({.threads = 2, .cores = {core, core}});
  device.run([&] {
    EXPECT_EQ(team_size(), 2);
    std::vector<int> where(2, -1);
    parallel_ranges(2, 0, [&](int thread, int64_t, int64_t) {
      where[static_cast<size_t>(thread)] = ::sched_getcpu();
    });
    EXPECT_EQ(where, (std::vector<int>{core, core}));
  });
}


}  // namespace
}  // namespace millrace
