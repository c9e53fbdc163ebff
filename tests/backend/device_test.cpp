#include "backend/device.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <stdexcept>
#include <thread>

#include "backend/cpu/cores.h"
#include "base/parallel.h"

namespace millrace::backend {
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

// Where each thread of the team may run.
std::vector<std::set<int>> places_of_team(Device& device) {
  std::vector<std::set<int>> places(static_cast<size_t>(device.threads()));
  device.run([&] {
    EXPECT_EQ(team_size(), device.threads());
    parallel_ranges(device.threads(), 0, [&](int thread, int64_t, int64_t) {
      cpu_set_t set;
      ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) places[static_cast<size_t>(thread)].insert(core);
      }
    });
  });
  return places;
}

TEST(Device, TeamHasTheSizeAskedForAndMovesAmongItsCores) {
  const std::vector<int> cores = usable_cores();
  Device device({.threads = static_cast<int>(cores.size())});
  for (const std::set<int>& place : places_of_team(device)) {
    EXPECT_EQ(place, std::set<int>(cores.begin(), cores.end()));
  }
}

TEST(Device, TeamIsKeptToTheCoresGiven) {
  const int core = usable_cores().back();
  Device device({.threads = 2, .cores = {core, core}});
  for (const std::set<int>& place : places_of_team(device)) {
    EXPECT_EQ(place, std::set<int>{core});
  }
}

}  // namespace
}  // namespace millrace::backend
