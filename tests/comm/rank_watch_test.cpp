#include "comm/rank_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <future>
#include <string>
#include <utility>

#include "comm/job_processes.h"

namespace millrace::comm {
namespace {

constexpr const char* kWatchedJob = "PMIX_NAMESPACE";

// What a watch finds lost; its rank is the first of two.
class Watched {
 public:
  explicit Watched(int local_ranks, RankWatchOptions options)
      : watch_(
            {.rank = 0, .ranks = 2, .local_rank = 0, .local_ranks = local_ranks},
            [this](int rank, const std::string& sentence) {
              lost_.set_value({rank, sentence});
            },
            options) {}

  std::pair<int, std::string> lost() { return lost_.get_future().get(); }

 private:
  std::promise<std::pair<int, std::string>> lost_;
  RankWatch watch_;
};

// A process that a launcher told to be rank 1 of this process's job.
pid_t start_other_rank() {
  const std::string job = fmt::format("watched-{}", ::getpid());
  ::setenv(kWatchedJob, job.c_str(), 1);
  const std::string variable = fmt::format("{}={}", kWatchedJob, job);
  std::array<int, 2> begun = {};  // closed when the program has begun
  EXPECT_EQ(::pipe2(begun.data(), O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execle("/bin/sleep", "sleep", "60", nullptr,
             std::array<const char*, 3>{variable.c_str(), "PMI_RANK=1", nullptr}.data());
    ::_exit(1);
  }
  ::close(begun[1]);
  char nothing = 0;
  EXPECT_EQ(::read(begun[0], &nothing, 1), 0);
  ::close(begun[0]);
  return child;
}

TEST(RankWatch, ARankThatASignalEndedIsToldWithIt) {
  const pid_t other = start_other_rank();
  Watched watched(2, {.gone = 0});
  ::usleep(300'000);  // in which it is found
  ::kill(other, SIGSEGV);
  ::waitpid(other, nullptr, 0);
  const auto [rank, sentence] = watched.lost();
  EXPECT_EQ(rank, 1);
  const std::string name =
      fmt::format("rank 1 on host {} (process {}) ", host_of_this_process(), other);
  // Where the system does not tell the status of others' children, the rank is just gone.
  EXPECT_TRUE(sentence == name + "was ended by signal 11 (Segmentation fault)" ||
              sentence == name + "is gone")
      << sentence;
  ::unsetenv(kWatchedJob);
}

TEST(RankWatch, ARankThatIsStoppedIsTold) {
  const pid_t other = start_other_rank();
  Watched watched(2, {.stopped = 0.5});
  ::kill(other, SIGSTOP);
  const auto [rank, sentence] = watched.lost();
  EXPECT_EQ(rank, 1);
  EXPECT_NE(sentence.find("has been stopped by a signal"), std::string::npos) << sentence;
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
  ::unsetenv(kWatchedJob);
}

TEST(RankWatch, ARankThatNeverComesIsTold) {
  Watched watched(1, {.joining = 0.5});
  const auto [rank, sentence] = watched.lost();
  EXPECT_EQ(rank, -1);
  EXPECT_NE(sentence.find("the 2 ranks were not joined"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace millrace::comm
