#include "cli/interruption.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "cli/command.h"
#include "comm/launcher.h"
#include "comm/launchers.h"

namespace millrace::cli {
namespace {

// The last two are those that launchers pass on to their ranks; batch systems send any of them
// before they end a job.
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr double kLauncherPatience = 5;  // seconds in which it says what it has seen itself
constexpr char kSignalled = 's';
constexpr char kUnread = 'u';
constexpr char kNoTime = 't';
constexpr char kOver = 'o';

// All that a signal handler can reach.
std::array<int, 2> bell = {-1, -1};
std::atomic<int64_t> first_signal = 0;  // nanoseconds of the monotonic clock; 0: none yet
static_assert(std::atomic<int64_t>::is_always_lock_free);

// timeout(1), launchers and terminals signal a process and its group: that is one wish, told twice.
constexpr int64_t kSameWish = 300'000'000;

void ring(char reason) {
  const int before = errno;
  while (::write(bell[1], &reason, 1) < 0 && errno == EINTR) {
  }
  errno = before;
}

// Whether it is the first; ends the process if it is a second one in a hurry.
bool is_first_signal() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t time = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  int64_t before = 0;
  if (first_signal.compare_exchange_strong(before, time)) return true;
  if (time - before > kSameWish) ::_exit(kExitInterrupted);
  return false;
}

void handle(int) {
  if (is_first_signal()) ring(kSignalled);
}

// When the command has ended, which its status tells: only a second signal is in a hurry.
void handle_late(int) { is_first_signal(); }

// Nobody reads what is printed any more, which every line tells again, or the time that a limit
// gives (ulimit -t) is used up, which every second tells again: that is no hurry.
void handle_again(int signal) {
  if (first_signal == 0 && is_first_signal()) ring(signal == SIGPIPE ? kUnread : kNoTime);
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  ::sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

void set_handlers(void (*handler)(int)) {
  for (const int signal : kSignals) set_handler(signal, handler);
}

}  // namespace

Interruption::Interruption()
    : sentence_("Interrupted; nothing was changed. Give the same command to start again.") {
  if (::pipe2(bell.data(), O_CLOEXEC) != 0) fail_job("There is no pipe for signals.");
  listener_ = std::thread([this] { listen(); });
  set_handlers(handle);
  set_handler(SIGXCPU, handle_again);
  set_handler(SIGXFSZ, SIG_IGN);  // a limit of files (ulimit -f) is an error of the write
}

Interruption::~Interruption() {
  set_handlers(handle_late);
  ring(kOver);
  listener_.join();
  for (int& end : bell) ::close(std::exchange(end, -1));
  first_signal = 0;
}

void Interruption::end_at_once(std::string sentence) {
  const std::lock_guard lock(mutex_);
  finishes_ = false;
  sentence_ = std::move(sentence);
  if (stop_) end();
}

void Interruption::finish_first(std::string sentence) {
  const std::lock_guard lock(mutex_);
  if (!finishes_ && comm::launched_ranks() == 1) set_handler(SIGPIPE, handle_again);
  finishes_ = true;
  sentence_ = std::move(sentence);
}

void Interruption::tell(std::function<void()> listener) {
  const std::lock_guard lock(mutex_);
  told_ = std::move(listener);
}

void Interruption::be_silent() {
  const std::lock_guard lock(mutex_);
  silent_ = true;
}

void Interruption::listen() {
  char reason = kOver;
  while (true) {
    const ssize_t count = ::read(bell[0], &reason, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1 || reason == kOver) return;
    if (reason == kUnread) cause_ = "Nobody reads standard output any more. ";
    if (reason == kNoTime) cause_ = "The limit of processor time (ulimit -t) is reached. ";
    answer();
  }
}

void Interruption::answer() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  if (told_) told_();
  if (!finishes_) end();
  say();
}

// Output so far is not lost, unless a thread is stuck in writing it.
void Interruption::end() {
  if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
  say();
  // A launcher waits for ranks that have not come to MPI and do not.
  if (comm::launched_ranks() > 1) {
    comm::end_launchers(comm::launchers_above(), {}, kLauncherPatience);
  }
  ::_exit(kExitInterrupted);
}

void Interruption::say() const {
  if (silent_) return;
  const char* clear = ::isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  const std::string line = fmt::format("{}millrace: {}{}\n", clear, cause_, sentence_);
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

void forget_interruption() {
  set_handlers(SIG_DFL);
  for (const int signal : {SIGPIPE, SIGXCPU}) set_handler(signal, SIG_DFL);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

}  // namespace millrace::cli
