#include "backend/cpu/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <set>
#include <thread>

#include "base/error.h"

namespace millrace::backend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Teams = std::vector<std::vector<int>>;

std::string refusal(const std::vector<int>& cores, int devices, int threads) {
  try {
    divide_cores(cores, devices, threads);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Cores, AreThoseThatTheOperatingSystemAllows) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(::sched_getaffinity(0, sizeof(set), &set), 0);
  const std::vector<int> cores = usable_cores();
  ASSERT_FALSE(cores.empty());
  EXPECT_LE(static_cast<int>(cores.size()), CPU_COUNT(&set));
  for (const int core : cores) EXPECT_TRUE(CPU_ISSET(core, &set)) << core;
  EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
  EXPECT_EQ(available_cores(), static_cast<int>(cores.size()));
}

TEST(Cores, KeepToBindsTheThreadAndThoseItStarts) {
  const int core = usable_cores().back();
  std::thread([core] {
    keep_to({core});
    EXPECT_EQ(::sched_getcpu(), core);
    std::thread([core] { EXPECT_EQ(::sched_getcpu(), core); }).join();
  }).join();
}

TEST(DivideCores, EvenlyByDefault) {
  EXPECT_EQ(divide_cores({0, 1, 2, 3}, 2, 0), (Teams{{0, 1}, {2, 3}}));
  EXPECT_EQ(divide_cores({5, 7, 9}, 1, 0), (Teams{{5, 7, 9}}));
  EXPECT_EQ(divide_cores({0, 1, 2, 3, 4, 5, 6}, 3, 0), (Teams{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(DivideCores, NoCoreTwiceWhateverTheNumbers) {
  for (int count = 1; count < 20; ++count) {
    std::vector<int> cores(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) cores[static_cast<size_t>(i)] = 3 * i;
    for (int devices = 1; devices <= count; ++devices) {
      for (int threads = 0; threads * devices <= count; ++threads) {
        std::set<int> used;
        size_t total = 0;
        for (const std::vector<int>& team : divide_cores(cores, devices, threads)) {
          EXPECT_EQ(team.size(), static_cast<size_t>(threads > 0 ? threads : count / devices));
          used.insert(team.begin(), team.end());
          total += team.size();
        }
        EXPECT_EQ(used.size(), total) << count << " cores, " << devices << " devices";
      }
    }
  }
}

TEST(DivideCores, MoreThreadsThanCoresAreRefusedWithAdvice) {
  EXPECT_THAT(refusal({0, 1}, 2, 2),
              AllOf(HasSubstr("need 4 cores, but there are 2"), HasSubstr("oversubscribe"),
                    HasSubstr("threads_per_device")));
  EXPECT_THAT(refusal({0, 1}, 3, 0), HasSubstr("need 3 cores"));
  EXPECT_THAT(refusal({0, 1}, 0, 0), HasSubstr("devices is 0"));
  EXPECT_THAT(refusal({0, 1}, 1, -1), HasSubstr("threads_per_device is -1"));
}

TEST(DivideCores, SharesCoresOnlyWhenAsked) {
  EXPECT_EQ(divide_cores({4, 6}, 3, 1, true), (Teams{{4}, {6}, {4}}));
  EXPECT_EQ(divide_cores({4, 6}, 2, 2, true), (Teams{{4, 6}, {4, 6}}));
}

TEST(CoresOfDevices, RanksOfOneHostShareItsCores) {
  const std::vector<int> cores = usable_cores();
  const int count = static_cast<int>(cores.size());
  comm::LaunchPlace place = {.ranks = count, .local_ranks = count};
  std::set<int> used;
  for (place.local_rank = 0; place.local_rank < count; ++place.local_rank) {
    const DeviceCores own = cores_of_devices(place, 1, 0);
    ASSERT_EQ(own.teams.size(), 1u);
    EXPECT_THAT(own.teams[0], ElementsAre(cores[static_cast<size_t>(place.local_rank)]));
    EXPECT_EQ(own.note, "");
  }
  place.local_rank = 0;
  EXPECT_THROW(cores_of_devices(place, 2, 0), InputError);
  EXPECT_THAT(cores_of_devices(place, 2, 0, true).note, HasSubstr("‹oversubscribe›"));
}

TEST(CoresOfDevices, ABindingThatWasAskedForIsKept) {
  const comm::LaunchPlace place = {
      .ranks = 8, .local_rank = 7, .local_ranks = 8, .binding = comm::Binding::as_asked};
  EXPECT_EQ(cores_of_devices(place, 1, 0).teams, Teams{usable_cores()});
}

}  // namespace
}  // namespace millrace::backend
