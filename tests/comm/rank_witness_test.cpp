#include "comm/rank_witness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "comm/launchers.h"

namespace millrace::comm {
namespace {

// What the witness says of a process that does `life`, until nobody is left who could speak.
std::string witnessed(const std::string& job, const std::function<void(RankWitness&)>& life) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    {
      RankWitness witness({.rank = 1, .ranks = 2, .local_rank = 0, .local_ranks = 1}, job);
      life(witness);
    }
    ::_exit(3);
  }
  ::close(pipe[1]);
  ::waitpid(child, nullptr, 0);
  std::string said;
  std::array<char, 512> piece = {};
  for (ssize_t length = 0; (length = ::read(pipe[0], piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<size_t>(length));
  }
  ::close(pipe[0]);
  return said;
}

std::string job_named(const char* what) { return fmt::format("{}-{}", what, ::getpid()); }

TEST(RankWitness, NamesTheSignalAndWhatTheRankWasDoing) {
  const std::string said = witnessed(job_named("killed"), [](RankWitness& witness) {
    witness.set_activity("step 12 (stage 1)");
    ::raise(SIGKILL);
  });
  EXPECT_NE(said.find("rank 1 on host "), std::string::npos) << said;
  EXPECT_NE(said.find("in step 12 (stage 1)"), std::string::npos) << said;
  // Where the system does not tell the status of others' children, the rank is just gone.
  EXPECT_TRUE(said.find("was ended by signal 9 (Killed)") != std::string::npos ||
              said.find("is gone") != std::string::npos)
      << said;
}

TEST(RankWitness, ARankThatEndsInOrderIsNotTold) {
  EXPECT_EQ(witnessed(job_named("fine"), [](RankWitness&) {}), "");
  EXPECT_EQ(witnessed(job_named("zero"), [](RankWitness&) { ::_exit(0); }), "");
}

TEST(RankWitness, ARankThatSpokeKeepsTheOthersSilent) {
  const std::string job = job_named("told");
  EXPECT_EQ(witnessed(job, [](RankWitness& witness) { witness.be_silent(); }), "");
  EXPECT_EQ(witnessed(job, [](RankWitness&) { ::raise(SIGKILL); }), "");
}

TEST(RankWitness, OnlyTheFirstRankOfAJobIsTold) {
  const std::string job = job_named("both");
  const auto die = [](RankWitness&) { ::raise(SIGKILL); };
  EXPECT_NE(witnessed(job, die).find("while the job began"), std::string::npos);
  EXPECT_EQ(witnessed(job, die), "");
}

// A rank that waits to be ended, and its witness.
struct Waiting {
  pid_t rank = 0;
  pid_t witness = 0;

  void end() const {
    ::kill(rank, SIGKILL);
    ::waitpid(rank, nullptr, 0);
  }
};

Waiting wait_as(int local_rank, const std::string& job, int errors) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  Waiting waiting;
  waiting.rank = ::fork();
  if (waiting.rank == 0) {
    ::dup2(errors, STDERR_FILENO);
    ::close(errors);
    const RankWitness witness({local_rank, 2, local_rank, 2}, job);
    const pid_t process = witness.process();
    if (::write(pipe[1], &process, sizeof(process)) != sizeof(process)) ::_exit(1);
    while (true) ::pause();
  }
  EXPECT_EQ(::read(pipe[0], &waiting.witness, sizeof(waiting.witness)),
            static_cast<ssize_t>(sizeof(waiting.witness)));
  ::close(pipe[0]);
  ::close(pipe[1]);
  return waiting;
}

TEST(RankWitness, TheRankThatEndedFirstIsToldThoughItsWitnessIsLate) {
  for (const int first : {0, 1}) {
    std::array<int, 2> pipe = {};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const std::string job = job_named(first == 0 ? "late0" : "late1");
    const std::array<Waiting, 2> ranks = {wait_as(0, job, pipe[1]), wait_as(1, job, pipe[1])};
    ::close(pipe[1]);
    ::usleep(200'000);  // in which they hear of each other
    const Waiting& victim = ranks[static_cast<size_t>(first)];
    ::kill(victim.witness, SIGSTOP);
    victim.end();
    ranks[static_cast<size_t>(1 - first)].end();
    ::usleep(200'000);
    ::kill(victim.witness, SIGCONT);
    std::string said;
    std::array<char, 512> piece = {};
    for (ssize_t length = 0; (length = ::read(pipe[0], piece.data(), piece.size())) > 0;) {
      said.append(piece.data(), static_cast<size_t>(length));
    }
    ::close(pipe[0]);
    EXPECT_NE(said.find(fmt::format("rank {} ", first)), std::string::npos) << said;
    EXPECT_EQ(said.find(fmt::format("rank {} ", 1 - first)), std::string::npos) << said;
  }
}

TEST(RankWitness, ShowsNothingOfTheRank) {
  const std::string said = witnessed(job_named("shown"), [](RankWitness& witness) {
    ::usleep(100'000);
    const std::string name = read_process(witness.process()).name;
    if (::write(STDERR_FILENO, name.data(), name.size()) < 0) ::_exit(1);
  });
  EXPECT_EQ(said, "rank-witness");
}

TEST(RankWitness, EndsInWords) {
  EXPECT_EQ(describe_rank_end({}), "is gone");
  EXPECT_EQ(describe_rank_end(0), "");
  EXPECT_EQ(describe_rank_end(130 << 8), "");
  EXPECT_EQ(describe_rank_end(1 << 8), "ended with status 1");
  EXPECT_EQ(describe_rank_end(SIGSEGV | 0x80), "was ended by signal 11 (Segmentation fault)");
}

}  // namespace
}  // namespace millrace::comm
