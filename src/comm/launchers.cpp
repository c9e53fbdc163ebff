#include "comm/launchers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"

namespace millrace::comm {
namespace {

constexpr std::array<std::string_view, 4> kFrontLaunchers = {"mpirun", "mpiexec", "orterun",
                                                             "prterun"};
constexpr std::array<std::string_view, 3> kDaemons = {"orted", "prted", "hydra_pmi_proxy"};
constexpr useconds_t kLaunchersLook = 100'000;  // microseconds
constexpr int kLastLooks = 5;

template <typename Names>
bool is_among(const Names& names, std::string_view name) {
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view each) { return name.starts_with(each); });
}

bool is_front_launcher(std::string_view name) { return is_among(kFrontLaunchers, name); }

bool is_launcher(std::string_view name) {
  return is_front_launcher(name) || is_among(kDaemons, name);
}

bool any_alive(const std::vector<ProcessMark>& processes) {
  return std::any_of(processes.begin(), processes.end(),
                     [](const ProcessMark& process) { return process.is_alive(); });
}

void signal_all(const std::vector<ProcessMark>& processes, int signal) {
  for (const ProcessMark& process : processes) {
    if (process.is_alive()) ::kill(process.number, signal);
  }
}

void wait_for_all(const std::vector<ProcessMark>& processes, int looks) {
  for (int i = 0; i < looks && any_alive(processes); ++i) ::usleep(kLaunchersLook);
}

}  // namespace

bool ProcessMark::is_alive() const {
  const ProcessFacts facts = read_process(number);
  return facts.start == start && facts.state != 'Z';
}

std::string read_process_file(pid_t number, const std::string& name) {
  const std::string path = "/proc/" + std::to_string(number) + "/" + name;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::string text;
  std::array<char, 4096> piece = {};
  ssize_t length = 0;
  while ((length = ::read(file, piece.data(), piece.size())) > 0) {
    text.append(piece.data(), static_cast<size_t>(length));
  }
  ::close(file);
  return length < 0 ? std::string() : text;
}

ProcessFacts read_process(pid_t number) {
  constexpr size_t kStart = 19;  // of the words behind the name
  const std::string line = read_process_file(number, "stat");
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 > line.size()) return {};
  const std::vector<std::string> words = split(std::string_view(line).substr(close + 2), ' ');
  if (words.size() <= kStart) return {};
  return {static_cast<pid_t>(std::atoi(words[1].c_str())), words[0][0],
          line.substr(open + 1, close - open - 1), words[kStart]};
}

std::vector<ProcessMark> launchers_above() { return launchers_of(::getpid()); }

std::vector<ProcessMark> launchers_of(pid_t process) {
  std::vector<ProcessMark> found;
  for (pid_t number = read_process(process).parent; number > 1;) {
    const ProcessFacts facts = read_process(number);
    if (!is_launcher(facts.name)) break;
    found.push_back({number, facts.start});
    number = facts.parent;
  }
  return found;
}

// A shell may be between the launcher and its daemon. The open file itself is best, where the
// system hands it out, as it keeps the place in a file that is written to by both.
int open_launcher_errors() {
  pid_t launcher = -1;
  for (pid_t number = ::getppid(); number > 1;) {
    const ProcessFacts facts = read_process(number);
    if (is_front_launcher(facts.name)) launcher = number;
    number = facts.parent;
  }
  if (launcher < 0) return -1;
  const auto handle = static_cast<int>(::syscall(SYS_pidfd_open, launcher, 0));
  if (handle < 0) return -1;
  const auto own = static_cast<int>(::syscall(SYS_pidfd_getfd, handle, STDERR_FILENO, 0));
  ::close(handle);
  if (own >= 0) return own;
  const std::string path = "/proc/" + std::to_string(launcher) + "/fd/2";
  return ::open(path.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
}

// The child has but one thread, whatever the others of its parent held; what it needs of the heap
// glibc keeps usable behind a fork. Its parent's descriptors it gives up: launchers read to their
// end.
void end_launchers(const std::vector<ProcessMark>& launchers, const std::vector<ProcessMark>& ranks,
                   double seconds) {
  if (launchers.empty()) return;
  const pid_t child = ::fork();
  if (child < 0) return;
  if (child > 0) {
    ::waitpid(child, nullptr, 0);
    return;
  }
  if (::fork() != 0) ::_exit(0);  // so that nobody need wait for the grandchild
  ::setsid();
  ::close_range(0, ~0U, 0);
  for (const int signal : {SIGHUP, SIGTERM, SIGINT}) ::signal(signal, SIG_IGN);
  wait_for_all(launchers, static_cast<int>(seconds * 1e6 / kLaunchersLook));
  signal_all(launchers, SIGTERM);
  wait_for_all(launchers, kLastLooks);
  signal_all(launchers, SIGKILL);
  wait_for_all(ranks, kLastLooks);
  for (const ProcessMark& rank : ranks) {
    const ProcessFacts facts = read_process(rank.number);
    if (facts.start == rank.start && facts.state == 'T') ::kill(rank.number, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace millrace::comm
