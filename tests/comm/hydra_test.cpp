#include "comm/hydra.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <thread>

namespace millrace::comm {
namespace {

// What the daemon of MPICH's launcher hears, which answers so.
std::string heard_with_answers(const std::string& first, const std::string& second, bool expected) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::string heard;
  std::thread daemon([&] {
    for (const std::string& answer : {first, second}) {
      std::array<char, 64> line = {};
      if (::read(ends[1], line.data(), line.size()) <= 0) return;
      heard += line.data();
      if (::write(ends[1], answer.data(), answer.size()) < 0) return;
    }
  });
  EXPECT_EQ(leave_hydra(ends[0], std::chrono::milliseconds(300)), expected);
  ::close(ends[0]);
  daemon.join();
  ::close(ends[1]);
  return heard;
}

TEST(Hydra, IsLeftBehindABarrier) {
  EXPECT_EQ(heard_with_answers("cmd=barrier_out\n", "cmd=finalize_ack\n", true),
            "cmd=barrier_in\ncmd=finalize\n");
}

TEST(Hydra, IsNotWaitedForLong) {
  EXPECT_EQ(heard_with_answers("cmd=barr", "", false), "cmd=barrier_in\n");
  EXPECT_EQ(heard_with_answers("cmd=barrier_out\n", "cmd=unknown\n", false),
            "cmd=barrier_in\ncmd=finalize\n");
}

TEST(Hydra, OtherLaunchersAreNone) {
  ::unsetenv("MPI_LOCALNRANKS");
  ::setenv("PMI_FD", "7", 1);  // as of Slurm's srun, which speaks another version
  EXPECT_EQ(hydra_descriptor(), -1);
  ::setenv("MPI_LOCALNRANKS", "2", 1);
  EXPECT_EQ(hydra_descriptor(), 7);
  ::unsetenv("PMI_FD");
  EXPECT_EQ(hydra_descriptor(), -1);
  ::unsetenv("MPI_LOCALNRANKS");
}

}  // namespace
}  // namespace millrace::comm
