#include "cli/elastic.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/interruption.h"

namespace millrace::cli {
namespace {

constexpr auto kAnswerLook = std::chrono::milliseconds(20);

int64_t ranks_on(const std::vector<HostRanks>& hosts) {
  int64_t ranks = 0;
  for (const HostRanks& host : hosts) ranks += host.ranks;
  return ranks;
}

bool is_this_host(const std::string& name) {
  std::array<char, 256> own = {};
  ::gethostname(own.data(), own.size() - 1);
  return name == own.data() || name == "localhost" || name == "127.0.0.1";
}

// A launcher that starts the program there, which tells its version and ends.
pid_t ask(const HostRanks& host) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command =
      launcher_command(host.name, program, {"--version"}, launcher_here());
  const pid_t child = ::fork();
  if (child < 0) fail_job("--elastic cannot ask host {}: {}.", host.name, ::strerror(errno));
  if (child > 0) return child;
  forget_interruption();
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int descriptor : {0, 1, 2}) ::dup2(nothing, descriptor);
  become_launcher(command);
  ::_exit(kExitJobFailed);
}

struct Question {
  HostRanks host;
  pid_t process = 0;  // 0: answered, or not asked
  bool answered = true;
};

void look(Question& question) {
  int status = 0;
  if (question.process == 0 || ::waitpid(question.process, &status, WNOHANG) == 0) return;
  question.answered = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  question.process = 0;
}

}  // namespace

ElasticJob share_over(const ElasticJob& job, const std::vector<HostRanks>& there) {
  if (there == job.hosts) return job;
  const int64_t samples = job.batch * job.devices * ranks_on(job.hosts);
  int64_t ranks = ranks_on(there);
  while (samples % (ranks * job.devices) != 0) --ranks;
  ElasticJob share = {{}, samples / (ranks * job.devices), job.devices};
  for (const HostRanks& host : there) {
    const int64_t taken = std::min<int64_t>(host.ranks, ranks - ranks_on(share.hosts));
    if (taken > 0) share.hosts.push_back({host.name, static_cast<int>(taken)});
  }
  return share;
}

std::vector<HostRanks> hosts_that_answer(const std::vector<HostRanks>& hosts, double seconds,
                                         const std::atomic<bool>& stop) {
  std::vector<Question> questions;
  for (const HostRanks& host : hosts) {
    const pid_t asked = is_this_host(host.name) ? 0 : ask(host);
    questions.push_back({host, asked, asked == 0});
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto is_open = [](const Question& question) { return question.process != 0; };
  while (!stop && std::chrono::steady_clock::now() < end &&
         std::any_of(questions.begin(), questions.end(), is_open)) {
    std::this_thread::sleep_for(kAnswerLook);
    for (Question& question : questions) look(question);
  }
  std::vector<HostRanks> there;
  for (const Question& question : questions) {
    if (question.process != 0) {
      ::kill(-question.process, SIGKILL);
      ::waitpid(question.process, nullptr, 0);
    }
    if (question.answered) there.push_back(question.host);
  }
  return there;
}

std::string describe_share(const ElasticJob& job, const std::vector<HostRanks>& there,
                           const ElasticJob& share) {
  std::vector<std::string> lost;
  for (const HostRanks& host : job.hosts) {
    if (std::find(there.begin(), there.end(), host) == there.end()) lost.push_back(host.name);
  }
  if (lost.empty()) return "";
  return fmt::format("host {} {} not answer, {} of {} ranks go on with --batch {}",
                     fmt::join(lost, ", "), lost.size() == 1 ? "does" : "do", ranks_on(share.hosts),
                     ranks_on(job.hosts), share.batch);
}

std::vector<std::string> arguments_of_share(const std::vector<std::string>& arguments,
                                            const ElasticJob& share) {
  std::vector<std::string> words = without_flag(without_flag(arguments, "--hosts"), "--batch");
  words.push_back("--hosts=" + hosts_text(share.hosts));
  words.push_back(fmt::format("--batch={}", share.batch));
  return words;
}

}  // namespace millrace::cli
