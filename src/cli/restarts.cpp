#include "cli/restarts.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/standard_files.h"
#include "train/checkpoint.h"
#include "train/checkpoint_lock.h"

namespace millrace::cli {
namespace {

constexpr std::string_view kRestartsFlag = "--restarts";
constexpr std::string_view kElasticFlag = "--elastic";
constexpr double kLongestAnswer = 10;  // seconds
constexpr auto kRestartLook = std::chrono::milliseconds(20);
constexpr auto kLongestEnd = std::chrono::seconds(20);

// A group of its own, so that a signal from the terminal reaches the run once, through us.
pid_t start_run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "millrace");
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) fail_job("--restarts cannot start the job: {}.", ::strerror(errno));
  if (child > 0) return child;
  forget_interruption();
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kExitInterrupted);
  ::execv("/proc/self/exe", words.data());
  ::_exit(kExitJobFailed);
}

int wait_for_run(pid_t child, const std::atomic<bool>& stop) {
  bool told = false;
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) fail_job("The job is lost: {}.", ::strerror(errno));
    if (stop && !told) {
      ::kill(child, SIGTERM);
      told = true;
    }
    std::this_thread::sleep_for(kRestartLook);
  }
}

// The ranks of a job that has failed may take a moment to end. What holds the lock longer has ended
// with its host, or holds it still, which the next run tells.
void wait_for_lock(const std::filesystem::path& directory, const std::atomic<bool>& stop) {
  const auto end = std::chrono::steady_clock::now() + kLongestEnd;
  while (!stop && std::chrono::steady_clock::now() < end) {
    try {
      const train::CheckpointLock lock(directory);
      return;
    } catch (const InputError&) {
      std::this_thread::sleep_for(10 * kRestartLook);
    }
  }
  if (!stop) train::remove_abandoned_lock(directory);
}

int64_t newest_step(const std::filesystem::path& directory) {
  const std::vector<train::CheckpointPlace> places = train::list_checkpoints(directory);
  return places.empty() ? 0 : places.back().step;
}

std::string describe_end(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                       ::strsignal(WTERMSIG(status)));
  }
  return fmt::format("failed with status {}", WEXITSTATUS(status));
}

// The job on the hosts that answer; `change` tells how it differs from what was asked for.
std::vector<std::string> arguments_that_remain(const Restarts& restarts, std::string& change,
                                               const std::atomic<bool>& stop) {
  const ElasticJob& job = *restarts.elastic;
  const std::vector<HostRanks> there = hosts_that_answer(job.hosts, kLongestAnswer, stop);
  if (there == job.hosts || stop) return restarts.arguments;
  if (there.empty()) fail_job("No host of --hosts answers, so that --elastic cannot go on.");
  const ElasticJob share = share_over(job, there);
  change = "; " + describe_share(job, there, share);
  return arguments_of_share(restarts.arguments, share);
}

}  // namespace

std::vector<std::string> arguments_of_run(const std::vector<std::string>& arguments, bool first) {
  std::vector<std::string> rest = without_flag(arguments, kRestartsFlag);
  std::erase(rest, kElasticFlag);
  if (!names_flag(arguments, kRestartsFlag)) {
    rest.push_back(std::string(kRestartsFlag) + "=0");
    rest.push_back(std::string(kElasticFlag) + "=false");
  }
  if (!first && std::find(rest.begin(), rest.end(), "--resume") == rest.end()) {
    rest.emplace_back("--resume");
  }
  return rest;
}

int run_restarting(const Restarts& restarts, Interruption& interruption) {
  interruption.finish_first("Stopping the job; it saves a checkpoint and ends.");
  int64_t failed_step = -1;
  std::vector<std::string> arguments = restarts.arguments;
  for (int number = 0;; ++number) {
    const int status =
        wait_for_run(start_run(arguments_of_run(arguments, number == 0)), interruption.stop());
    const bool exited = WIFEXITED(status);
    if (exited && (WEXITSTATUS(status) == kExitSuccess || WEXITSTATUS(status) == kExitBadInput ||
                   WEXITSTATUS(status) == kExitInterrupted)) {
      return WEXITSTATUS(status);
    }
    if (interruption.stop()) return kExitInterrupted;
    const std::string end = describe_end(status);
    const int64_t step = newest_step(restarts.checkpoint);
    if (number == restarts.most) {
      fail_job(
          "The job {} and was restarted {} times, as --restarts allows; its newest checkpoint "
          "is of step {}.",
          end, number, step);
    }
    std::string change;
    if (restarts.elastic) {
      const std::vector<std::string> before = arguments;
      arguments = arguments_that_remain(restarts, change, interruption.stop());
      if (arguments != before) failed_step = -1;
    }
    if (interruption.stop()) return kExitInterrupted;
    if (exited && failed_step == step) {
      fail_job(
          "The job {} again without having got beyond the checkpoint of step {}; it is not "
          "restarted.",
          end, step);
    }
    if (exited) failed_step = step;
    print_error("millrace: The job {}; restart {} of {} goes on from step {}{}.\n", end, number + 1,
                restarts.most, step, change);
    wait_for_lock(restarts.checkpoint, interruption.stop());
  }
}

}  // namespace millrace::cli
