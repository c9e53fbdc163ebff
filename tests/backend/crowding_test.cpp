#include "backend/cpu/crowding.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <thread>

#include "backend/cpu/cores.h"
#include "base/parallel.h"

namespace millrace::backend {
namespace {

using namespace std::chrono_literals;

// The intervals of 20 ms until the rule has changed its mind; 1000 if it does not.
int intervals_until(CrowdRule& rule, bool crowded, double share) {
  int count = 1;
  while (count < 1000 && rule.crowded_after(0.02, share * 0.02) != crowded) ++count;
  return count;
}

TEST(CrowdRule, TakesAThirdForACrowdWithinATenthOfASecond) {
  CrowdRule rule;
  EXPECT_LE(intervals_until(rule, true, 1.0 / 3), 5);
  EXPECT_EQ(intervals_until(rule, false, 0.05), 1000);
  EXPECT_LE(intervals_until(rule, false, 0), 50);
}

TEST(CrowdRule, TakesWhatIsLostNowAndThenForNone) {
  CrowdRule rule;
  EXPECT_EQ(intervals_until(rule, true, 0.09), 1000);
  CrowdRule other;
  for (int second = 0; second < 10; ++second) {
    EXPECT_FALSE(other.crowded_after(0.02, 0.02)) << "one interval of a second lost whole";
    for (int i = 0; i < 49; ++i) EXPECT_FALSE(other.crowded_after(0.02, 0));
  }
}

double processor_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Processor time of a team of which one member sleeps for 4 ms, ten times.
double seconds_of_waiting() {
  double seconds = 0;
  std::thread([&] {
    set_team_size(2);
    const double before = processor_seconds();
    for (int i = 0; i < 10; ++i) {
      parallel_ranges(2, 0, [](int thread, int64_t, int64_t) {
        if (thread == 1) std::this_thread::sleep_for(4ms);
      });
    }
    seconds = processor_seconds() - before;
  }).join();
  return seconds;
}

// Else they spin for most of it, 40 ms.
TEST(IdleTeam, LetsTeamsSleepWhileTheyWait) {
  const IdleTeam idle;
  EXPECT_LT(seconds_of_waiting(), 0.01);
}

int threads_of_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(CrowdWatch, KeepsAnIdleTeamWhileItsThreadIsDelayed) {
  std::atomic<bool> stop = false;
  std::atomic<pid_t> id = 0;
  const int core = usable_cores().front();
  const auto work = [&](bool watched) {
    keep_to({core});
    if (watched) id = ::gettid();
    while (!stop) {
    }
  };
  std::thread thread(work, true);
  std::thread neighbour(work, false);
  while (id == 0) std::this_thread::yield();
  const int before = threads_of_process();
  int most = 0;
  {
    const CrowdWatch watch(id);
    for (int i = 0; i < 1000 && most < before + 3;
         ++i) {  // the watch, who makes the team, and the team
      std::this_thread::sleep_for(10ms);
      most = std::max(most, threads_of_process());
    }
  }
  EXPECT_GE(most, before + 3);
  EXPECT_EQ(threads_of_process(), before);
  stop = true;
  thread.join();
  neighbour.join();
}

TEST(CrowdWatch, OfAThreadThatIsGoneDoesNothing) { const CrowdWatch watch(0x3fffffff); }

}  // namespace
}  // namespace millrace::backend
