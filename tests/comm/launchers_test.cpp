#include "comm/launchers.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

namespace millrace::comm {
namespace {

TEST(Launchers, ProcessesAreReadAndTold) {
  const ProcessFacts own = read_process(::getpid());
  EXPECT_EQ(own.parent, ::getppid());
  EXPECT_EQ(own.name, "test_comm");
  EXPECT_TRUE((ProcessMark{::getpid(), own.start}).is_alive());
  EXPECT_FALSE((ProcessMark{::getpid(), own.start + "1"}).is_alive());  // another of that number
  EXPECT_EQ(read_process(-1).name, "");
}

// A program of that name, not its contents, makes a launcher.
TEST(Launchers, OnlyThoseOfThisJobAreEndedAndOnlyWhenTheyStay) {
  const auto copy = std::filesystem::path(::testing::TempDir()) / "mpirun-pretended";
  std::filesystem::copy_file("/bin/sleep", copy, std::filesystem::copy_options::overwrite_existing);
  const auto start = [&] {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::execl(copy.c_str(), "mpirun-pretended", "30", nullptr);
    ::_exit(1);
  };
  const pid_t stays = start();
  const pid_t other = start();
  ::usleep(300'000);
  const ProcessFacts facts = read_process(stays);
  EXPECT_EQ(facts.name, "mpirun-pretende");
  end_launchers({{stays, facts.start}, {other, "of another process"}});
  int status = 0;
  EXPECT_EQ(::waitpid(stays, &status, 0), stays);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  EXPECT_EQ(::waitpid(other, &status, WNOHANG), 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, &status, 0);
  std::filesystem::remove(copy);
}

// A stopped process does not hear of its launcher's end.
TEST(Launchers, RanksThatAreStoppedAreEndedWithThem) {
  const auto start = [] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::sleep(30);
      ::_exit(0);
    }
    return child;
  };
  const pid_t stopped = start();
  const pid_t other = start();
  const pid_t running = start();
  for (const pid_t each : {stopped, other}) ::kill(each, SIGSTOP);
  end_launchers({{-1, "gone"}}, {{stopped, read_process(stopped).start},
                                 {other, "of another process"},
                                 {running, read_process(running).start}});
  int status = 0;
  pid_t ended = 0;
  for (int look = 0; look < 50 && ended == 0; ++look) {
    ::usleep(100'000);
    ended = ::waitpid(stopped, &status, WNOHANG);
  }
  EXPECT_EQ(ended, stopped);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  for (const pid_t each : {other, running}) {
    EXPECT_EQ(::waitpid(each, &status, WNOHANG), 0);
    ::kill(each, SIGKILL);
    ::waitpid(each, &status, 0);
  }
}

}  // namespace
}  // namespace millrace::comm
