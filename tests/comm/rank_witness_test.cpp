#include "comm/rank_witness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>

#include "comm/launchers.h"
#include "comm/rank_status.h"

namespace millrace::comm {
namespace {

// Until nobody is left who could write; closes the descriptor.
std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 512> piece = {};
  for (ssize_t length = 0; (length = ::read(descriptor, piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<size_t>(length));
  }
  ::close(descriptor);
  return text;
}

// What the witness says of a process that does `life`, until nobody is left who could speak.
std::string witnessed(const JobMark& job, const std::function<void(RankWitness&)>& life,
                      int local_ranks = 1, rlim_t most_descriptors = 0) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    const rlimit limit = {most_descriptors, most_descriptors};
    if (most_descriptors > 0) ::setrlimit(RLIMIT_NOFILE, &limit);
    {
      RankWitness witness({.rank = 1, .ranks = 2, .local_rank = 0, .local_ranks = local_ranks},
                          job);
      life(witness);
    }
    ::_exit(3);
  }
  ::close(pipe[1]);
  ::waitpid(child, nullptr, 0);
  return read_all(pipe[0]);
}

constexpr const char* kJobVariable = "MILLRACE_TEST_JOB";

JobMark job_named(const char* what) {
  return {kJobVariable, fmt::format("{}-{}", what, ::getpid()), 0};
}

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

// So that nobody takes a launcher's answer, given on another host, for the cause.
TEST(RankWitness, ARankThatWasToldToEndIsNotBlamed) {
  const std::string said = witnessed(job_named("asked"), [](RankWitness& witness) {
    witness.set_activity("step 5");
    witness.expect_end();
    ::raise(SIGKILL);
  });
  EXPECT_EQ(said.find("was ended by signal"), std::string::npos) << said;
  // Where the system does not tell the status of others' children, nobody knows what ended it.
  EXPECT_TRUE(said.find("was told to end and then killed in step 5") != std::string::npos ||
              said.find("is gone") != std::string::npos)
      << said;
}

TEST(RankWitness, ARankThatEndsInOrderIsNotTold) {
  EXPECT_EQ(witnessed(job_named("fine"), [](RankWitness&) {}), "");
  EXPECT_EQ(witnessed(job_named("zero"), [](RankWitness&) { ::_exit(0); }), "");
}

TEST(RankWitness, ARankThatSpokeKeepsTheOthersSilent) {
  const JobMark job = job_named("told");
  EXPECT_EQ(witnessed(
                job, [](RankWitness& witness) { witness.be_silent(); }, 2),
            "");
  EXPECT_EQ(witnessed(
                job, [](RankWitness&) { ::raise(SIGKILL); }, 2),
            "");
}

TEST(RankWitness, OnlyTheFirstRankOfAJobIsTold) {
  const JobMark job = job_named("both");
  const auto die = [](RankWitness&) { ::raise(SIGKILL); };
  EXPECT_NE(witnessed(job, die, 2).find("while the job began"), std::string::npos);
  EXPECT_EQ(witnessed(job, die, 2), "");
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

Waiting wait_as(int local_rank, const JobMark& job, int errors) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe(pipe.data()), 0);
  Waiting waiting;
  waiting.rank = ::fork();
  if (waiting.rank == 0) {
    ::dup2(errors, STDERR_FILENO);
    ::close(errors);
    const RankWitness witness({local_rank, 2, local_rank, 2}, job);
    const pid_t process = witness.process();
    ::signal(SIGUSR1, [](int) { ::_exit(15); });
    if (::write(pipe[1], &process, sizeof(process)) != sizeof(process)) ::_exit(1);
    while (true) ::pause();
  }
  EXPECT_EQ(::read(pipe[0], &waiting.witness, sizeof(waiting.witness)),
            static_cast<ssize_t>(sizeof(waiting.witness)));
  ::close(pipe[0]);
  ::close(pipe[1]);
  return waiting;
}

// Keeps a process from doing anything, so that a rank's end does not wake it either.
void hold(pid_t process) {
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, process, nullptr, nullptr), 0);
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr), 0);
  ::waitpid(process, nullptr, __WALL);
}

void release(pid_t process) { ::ptrace(PTRACE_DETACH, process, nullptr, nullptr); }

TEST(RankWitness, TheRankThatEndedFirstIsToldThoughItsWitnessIsLate) {
  for (const int first : {0, 1}) {
    std::array<int, 2> pipe = {};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const JobMark job = job_named(first == 0 ? "late0" : "late1");
    const std::array<Waiting, 2> ranks = {wait_as(0, job, pipe[1]), wait_as(1, job, pipe[1])};
    ::close(pipe[1]);
    ::usleep(200'000);  // in which they hear of each other
    const Waiting& victim = ranks[static_cast<size_t>(first)];
    hold(victim.witness);
    victim.end();
    ranks[static_cast<size_t>(1 - first)].end();
    ::usleep(200'000);
    release(victim.witness);
    const std::string said = read_all(pipe[0]);
    EXPECT_NE(said.find(fmt::format("rank {} ", first)), std::string::npos) << said;
    EXPECT_EQ(said.find(fmt::format("rank {} ", 1 - first)), std::string::npos) << said;
  }
}

// A rank that is alone on its host, and stops at once.
Waiting stop_alone(const char* what, bool is_heard, const std::array<int, 2>& pipe) {
  Waiting stopped;
  stopped.rank = ::fork();
  if (stopped.rank == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    ::close(pipe[0]);
    ::close(pipe[1]);
    RankWitness witness({.rank = 1, .ranks = 2, .local_rank = 0, .local_ranks = 1},
                        job_named(what));
    witness.set_heard(is_heard);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  ::close(pipe[1]);
  return stopped;
}

TEST(RankWitness, ARankThatIsStoppedIsToldUnlessOthersNotice) {
  std::array<int, 2> unheard_pipe = {};
  std::array<int, 2> heard_pipe = {};
  ASSERT_EQ(::pipe2(unheard_pipe.data(), O_CLOEXEC), 0);
  const Waiting unheard = stop_alone("stopped", false, unheard_pipe);
  ASSERT_EQ(::pipe2(heard_pipe.data(), O_CLOEXEC), 0);
  const Waiting heard = stop_alone("noticed", true, heard_pipe);
  std::array<char, 512> told = {};
  ASSERT_GT(::read(unheard_pipe[0], told.data(), told.size() - 1), 0);
  EXPECT_NE(std::string(told.data()).find("rank 1 on host "), std::string::npos) << told.data();
  EXPECT_NE(std::string(told.data()).find("has been stopped by a signal while the job began"),
            std::string::npos)
      << told.data();
  ::usleep(500'000);
  unheard.end();
  EXPECT_EQ(read_all(unheard_pipe[0]), "");  // nothing more
  heard.end();
  const std::string said = read_all(heard_pipe[0]);
  EXPECT_EQ(said.find("stopped"), std::string::npos) << said;
}

// Whoever reads what the ranks write would wait for a witness that is stopped.
TEST(RankWitness, OneThatIsStoppedGoesOnWhenItsRankEnds) {
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Waiting waiting = wait_as(0, job_named("halted"), pipe[1]);
  ::close(pipe[1]);
  ::usleep(200'000);  // in which it begins
  ::kill(waiting.witness, SIGSTOP);
  waiting.end();
  pollfd entry = {pipe[0], POLLIN, 0};
  ASSERT_GT(::poll(&entry, 1, 5000), 0);
  const std::string said = read_all(pipe[0]);
  EXPECT_NE(said.find("rank 0 "), std::string::npos) << said;
}

// A process that a launcher told its rank, and that has not come to its first line.
pid_t start_unwitnessed(int rank, const JobMark& job) {
  const std::string words = fmt::format("{}={}", job.variable, job.value);
  const std::string number = fmt::format("PMI_RANK={}", rank);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    ::execle("/bin/sleep", "sleep", "60", nullptr,
             std::array<const char*, 3>{words.c_str(), number.c_str(), nullptr}.data());
    ::_exit(1);
  }
  return child;
}

// Ends the rank without a witness, and then, as a launcher would, the other.
std::string told_of_unwitnessed(const JobMark& job, int signal) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Waiting other = wait_as(0, job, pipe[1]);
  ::close(pipe[1]);
  const pid_t victim = start_unwitnessed(1, job);
  ::usleep(300'000);  // in which the witness finds it
  ::kill(victim, signal);
  ::waitpid(victim, nullptr, 0);
  other.end();
  return read_all(pipe[0]);
}

TEST(RankWitness, ARankThatEndsBeforeItHasAWitnessIsToldByAnother) {
  const std::string said = told_of_unwitnessed(job_named("early"), SIGSEGV);
  EXPECT_NE(said.find("rank 1 on host "), std::string::npos) << said;
  EXPECT_NE(said.find("while the job began"), std::string::npos) << said;
  EXPECT_EQ(said.find("rank 0 "), std::string::npos) << said;
}

#ifndef __SANITIZE_ADDRESS__  // which takes more addresses than any limit leaves
TEST(RankWitness, ALimitOfMemoryIsTold) {
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit limit = {uint64_t{3} << 30, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  const std::string said = witnessed(job_named("limited"), [](RankWitness&) { ::raise(SIGSEGV); });
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_NE(said.find("its memory was limited to 3.00 GiB"), std::string::npos) << said;
}
#endif

// A rank whose launcher ended it because of another, which was gone before anybody could see it.
TEST(RankWitness, ARankThatWasNeverSeenMayHaveBeenTheFirst) {
  const std::string said = witnessed(
      job_named("unseen"), [](RankWitness&) { ::raise(SIGKILL); }, 2);
  EXPECT_NE(said.find("rank 1 (process "), std::string::npos) << said;
  EXPECT_NE(said.find("or rank 0 (which was never seen)"), std::string::npos) << said;
  const std::string crash = witnessed(
      job_named("crashed"), [](RankWitness&) { ::raise(SIGSEGV); }, 2);
  EXPECT_EQ(crash.find("rank 0"), std::string::npos) << crash;
}

// The end of a process without a witness is heard of later than it happens.
TEST(RankWitness, RanksThatEndAtOnceAreBothTold) {
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const JobMark job = job_named("at once");
  const pid_t victim = start_unwitnessed(1, job);
  ::usleep(100'000);  // in which it becomes another program
  const Waiting other = wait_as(0, job, pipe[1]);
  ::close(pipe[1]);
  ::usleep(300'000);
  hold(other.witness);
  other.end();
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
  release(other.witness);
  const std::string said = read_all(pipe[0]);
  EXPECT_NE(said.find("rank 0 (process "), std::string::npos) << said;
  EXPECT_NE(said.find("or rank 1 (process "), std::string::npos) << said;
}

// MPICH has the others killed before a rank ends that it cannot join.
TEST(RankWitness, ARankThatMpiGaveUpIsToldBesideTheOneThatWasEndedForIt) {
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const JobMark job = job_named("given up");
  const std::array<Waiting, 2> ranks = {wait_as(0, job, pipe[1]), wait_as(1, job, pipe[1])};
  ::close(pipe[1]);
  ::usleep(200'000);
  ::kill(ranks[0].rank, SIGKILL);
  ::usleep(50'000);
  ::kill(ranks[1].rank, SIGUSR1);
  const std::string said = read_all(pipe[0]);
  EXPECT_NE(said.find("rank 0 (process "), std::string::npos) << said;
  EXPECT_NE(said.find("or rank 1 (process "), std::string::npos) << said;
  EXPECT_NE(said.find("which ended with status 15"), std::string::npos) << said;
  for (const Waiting& rank : ranks) ::waitpid(rank.rank, nullptr, 0);
}

// It holds the word until the others have ended, and is not left behind longer than they are.
TEST(RankWitness, EndsWithTheLastRank) {
  std::array<int, 2> pipe = {};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const JobMark job = job_named("last");
  const std::array<Waiting, 2> ranks = {wait_as(0, job, pipe[1]), wait_as(1, job, pipe[1])};
  ::close(pipe[1]);
  ::usleep(200'000);
  for (const Waiting& rank : ranks) rank.end();
  read_all(pipe[0]);
  const auto begin = std::chrono::steady_clock::now();
  const auto is_there = [](pid_t process) {
    const ProcessFacts facts = read_process(process);
    return !facts.start.empty() && facts.state != 'Z';
  };
  for (const Waiting& rank : ranks) {
    while (is_there(rank.witness)) ::usleep(10'000);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

// A launcher that ends before its ranks, or in the middle of starting them, passes on nothing.
TEST(RankWitness, SpeaksWhereTheLauncherDidIfThatIsGone) {
  std::array<int, 2> launcher_errors = {};
  std::array<int, 2> rank_errors = {};
  ASSERT_EQ(::pipe2(launcher_errors.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(rank_errors.data(), O_CLOEXEC), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::prctl(PR_SET_NAME, "mpirun-pretended");
    ::dup2(launcher_errors[1], STDERR_FILENO);
    if (::fork() == 0) {
      ::prctl(PR_SET_NAME, "rank");
      ::dup2(rank_errors[1], STDERR_FILENO);
      for (const int end : {launcher_errors[0], launcher_errors[1], rank_errors[1]}) ::close(end);
      RankWitness witness({.rank = 1, .ranks = 1, .local_rank = 0, .local_ranks = 1},
                          job_named("orphan"));
      witness.set_activity("step 7");
      ::usleep(1'000'000);
      ::close(rank_errors[0]);
      ::raise(SIGKILL);
    }
    ::close(rank_errors[0]);
    ::usleep(500'000);  // in which the witness finds it
    ::_exit(0);
  }
  for (const int end : {launcher_errors[1], rank_errors[0], rank_errors[1]}) ::close(end);
  ::waitpid(launcher, nullptr, 0);
  const std::string said = read_all(launcher_errors[0]);
  EXPECT_NE(said.find("rank 1 on host "), std::string::npos) << said;
  EXPECT_NE(said.find("in step 7"), std::string::npos) << said;
}

// Without descriptors to spare it may not know of the end, but does not wait for it for ever.
TEST(RankWitness, FewDescriptorsLeaveNobodyBehind) {
  for (const rlim_t most : {24, 16, 12, 10, 9, 8}) {
    const JobMark job = job_named(fmt::format("few-{}", most).c_str());
    const std::string said = witnessed(
        job, [&](RankWitness&) { ::raise(SIGKILL); }, 1, most);
    if (most > 12) {
      EXPECT_NE(said.find("while the job began"), std::string::npos) << most << ": " << said;
    }
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
