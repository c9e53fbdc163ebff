#include "comm/rank_witness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <fstream>
#include <initializer_list>
#include <mutex>
#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/launchers.h"
#include "comm/rank_ends.h"
#include "comm/rank_status.h"

namespace millrace::comm {

// Written by the rank, read by the witness when the rank has ended.
struct RankWitness::Page {
  std::mutex mutex;  // of the rank's threads
  std::atomic<bool> silent;
  std::atomic<bool> told_to_end;
  std::atomic<bool> heard;
  std::array<char, 256> activity;
};

namespace {

constexpr double kLauncherPatience = 4;      // seconds in which it says what it has seen itself
constexpr int kToldMilliseconds = 4000;      // in which a launcher ends the other ranks
constexpr useconds_t kOthersTell = 300'000;  // microseconds

struct EndedRank {
  int rank = -1;      // -1 if it is not known which
  pid_t process = 0;  // 0 if it was never seen
  std::optional<int> status;
};

// What is told.
struct Ended {
  EndedRank first;
  std::string activity;
  std::vector<EndedRank> rivals;  // that may have been the first instead
  bool told_to_end = false;
};

// Of the whole system; 0 where it is not told.
long ended_for_memory() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  long count = 0;
  while (file >> name >> count) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

// Of the rank while the system knows it, else of this process, which it started (ulimit -v).
std::optional<uint64_t> memory_limit(pid_t rank) {
  rlimit limit = {};
  if (::prlimit(rank, RLIMIT_AS, nullptr, &limit) != 0) ::getrlimit(RLIMIT_AS, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) return {};
  return limit.rlim_cur;
}

// /proc shows the memory where the arguments and the variables of a process began.
void hide_words() {
  constexpr size_t kFirst = 45;  // begin and end of both, of the words behind the name
  const std::vector<std::string> words = stat_words(::getpid());
  if (words.size() < kFirst + 4) return;
  for (const size_t at : {kFirst, kFirst + 2}) {
    const auto begin = std::stoull(words[at]);
    const auto end = std::stoull(words[at + 1]);
    if (begin != 0 && begin < end) {
      ::memset(reinterpret_cast<void*>(begin), 0, end - begin);  // NOLINT: addresses as told
    }
  }
}

// Whether this is the first witness of the job's ranks on this host to ask. The name is given up
// when the process ends.
bool takes_the_word(const std::string& job) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "millrace-" + job;
  const size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  ::memcpy(address.sun_path + 1, name.data(), length);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return socket >= 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0;
}

// Leaves standard error, and what is kept, which gets the numbers behind it.
std::array<int, 4> close_others(std::array<int, 4> kept) {
  constexpr int kBehind = 7;
  for (int& descriptor : kept) descriptor = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kBehind);
  std::array<int, 4> numbers = {3, 4, 5, 6};
  for (size_t i = 0; i < kept.size(); ++i) {
    if (::dup2(kept[i], numbers[i]) >= 0) continue;
    ::close(numbers[i]);
    numbers[i] = -1;
  }
  ::close_range(kBehind, ~0U, 0);
  ::close(0);
  ::close(1);
  return numbers;
}

bool is_ended_by(std::optional<int> status, std::initializer_list<int> signals) {
  return status && WIFSIGNALED(*status) &&
         std::find(signals.begin(), signals.end(), WTERMSIG(*status)) != signals.end();
}

bool say(const std::string& sentence, std::initializer_list<int> descriptors) {
  return std::any_of(descriptors.begin(), descriptors.end(), [&](int descriptor) {
    return ::write(descriptor, sentence.data(), sentence.size()) >= 0;
  });
}

// By which launchers end ranks, once one has failed.
bool is_signal_of_launchers(std::optional<int> status) {
  return !status || is_ended_by(status, {SIGKILL, SIGTERM});
}

// Libraries abort when they cannot reach the memory of a rank that is ending.
bool may_be_answer(std::optional<int> status) {
  return is_signal_of_launchers(status) || is_ended_by(status, {SIGABRT});
}

bool has_failed(std::optional<int> status) {
  return status && WIFEXITED(*status) && !describe_rank_end(status).empty();
}

// A rank that ended by itself, without a witness, may have been none of this program.
Ended find_first(const Ended& own, const RankEnds::Ends& seen) {
  const auto ended_rank = [](const RankEnds::Rival& each) {
    EndedRank rank = {each.rank, each.process, {}};
    if (each.process > 0) rank.status = status_of_ended(each.process, each.handle);
    return rank;
  };
  if (seen.first) {
    const EndedRank first = ended_rank(*seen.first);
    return !first.status || WIFSIGNALED(*first.status) ? Ended{first, "", {}} : own;
  }
  if (!may_be_answer(own.first.status)) return own;
  const bool has_aborted = is_ended_by(own.first.status, {SIGABRT});
  const bool was_joining = own.activity.empty();
  Ended ended = own;
  for (const RankEnds::Rival& each : seen.rivals) {
    if (each.has_witness && !has_aborted && !was_joining) continue;
    const EndedRank rival = ended_rank(each);
    // MPI ends a rank that it cannot join only after it has had the others ended.
    if (was_joining && has_failed(rival.status)) ended.rivals.push_back(rival);
    if (each.has_witness && !has_aborted) continue;
    if (rival.status && (!WIFSIGNALED(*rival.status) || WTERMSIG(*rival.status) == SIGABRT))
      continue;
    if (!is_signal_of_launchers(rival.status)) {
      return {rival, each.has_witness ? own.activity : "", {}};
    }
    ended.rivals.push_back(rival);
  }
  return ended;
}

std::string describe_rival(const EndedRank& each) {
  const std::string rank = each.rank < 0 ? "another rank" : fmt::format("rank {}", each.rank);
  if (each.process == 0) return rank + " (which was never seen)";
  return fmt::format("{} (process {}), which {},", rank, each.process,
                     describe_rank_end(each.status));
}

std::string describe_doing(const std::string& activity) {
  return activity.empty() ? "while the job began" : "in " + activity;
}

// "rank 1 on host a (process 7) was ended by signal 9 (Killed) in step 3", without the full stop.
std::string describe_end(const Ended& ended) {
  const std::string doing = describe_doing(ended.activity);
  if (ended.told_to_end && ended.rivals.empty()) {
    return fmt::format("rank {} on host {} (process {}) was told to end and then killed {}",
                       ended.first.rank, host_of_this_process(), ended.first.process, doing);
  }
  if (ended.rivals.empty()) {
    return fmt::format("rank {} on host {} (process {}) {} {}", ended.first.rank,
                       host_of_this_process(), ended.first.process,
                       describe_rank_end(ended.first.status), doing);
  }
  std::string ranks = describe_rival(ended.first);
  for (const EndedRank& rival : ended.rivals) ranks += " or " + describe_rival(rival);
  return fmt::format("on host {} either {} was the first to end {}", host_of_this_process(), ranks,
                     doing);
}

// What started the rank on its host, from the daemon up; who ended one of them ended the rank.
class Starters {
 public:
  explicit Starters(const std::vector<ProcessMark>& launchers) : launchers_(launchers) {
    for (const ProcessMark& each : launchers) {
      names_.push_back(read_process(each.number).name);
      handles_.push_back(static_cast<int>(::syscall(SYS_pidfd_open, each.number, 0)));
    }
  }

  // "; its launcher mpirun (process 7) was ended by signal 9 (Killed)", if there is such a one.
  std::string describe_end() const {
    for (size_t i = 0; i < launchers_.size(); ++i) {
      if (launchers_[i].is_alive()) continue;
      const std::optional<int> status = status_of_ended(launchers_[i].number, handles_[i]);
      if (!status || !WIFSIGNALED(*status)) continue;
      return fmt::format("; its launcher {} (process {}) {}", names_[i], launchers_[i].number,
                         describe_rank_end(status));
    }
    return "";
  }

 private:
  const std::vector<ProcessMark> launchers_;
  std::vector<std::string> names_;
  std::vector<int> handles_;
};

// Whether a process has been stopped for long; asked every now and then. What passes while the one
// who asks is stopped itself does not count.
class StopWatch {
 public:
  explicit StopWatch(pid_t process) : process_(process) {}

  bool has_stopped_long() {
    const Clock::time_point now = Clock::now();
    const std::chrono::duration<double> passed = now - std::exchange(last_, now);
    const bool stopped = read_process(process_).state == 'T';
    seconds_ = stopped ? seconds_ + std::min(passed.count(), kLongestLook) : 0;
    return seconds_ > kLongestStop;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kLongestLook = 0.5;
  static constexpr double kLongestStop = 3;

  const pid_t process_;
  Clock::time_point last_ = Clock::now();
  double seconds_ = 0;
};

}  // namespace

RankWitness::RankWitness(const LaunchPlace& place, const JobMark& job) {
  const pid_t rank = ::getpid();
  const RankSigns signs = make_rank_signs();
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, rank, 0));
  void* memory =
      ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    if (handle >= 0) ::close(handle);
    return;
  }
  page_ = new (memory) Page{};
  const pid_t child = handle < 0 || signs.write[1] < 0 ? -1 : ::fork();
  if (child != 0) {
    for (const int descriptor : {handle, signs.read[0], signs.read[1]}) {
      if (descriptor >= 0) ::close(descriptor);
    }
    signs_ = signs.write;
    process_ = std::max(child, 0);
    return;
  }

  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "rank-witness");
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);  // one that was stopped tells the end all the same
  hide_words();
  const auto [own, low, high, launcher_errors] =
      close_others({handle, signs.read[0], signs.read[1], open_launcher_errors()});
  if (own < 0 || low < 0 || high < 0) ::_exit(0);  // it would not hear of the end
  const std::vector<ProcessMark> launchers = launchers_of(rank);
  const Starters starters(launchers);
  const long memory_ends = ended_for_memory();
  RankEnds ends(place, job, rank, {low, high});
  StopWatch stop_watch(rank);
  bool has_told = false;
  const auto is_watched = [&] {
    if (place.local_ranks > 1) return false;
    if (page_->heard || !stop_watch.has_stopped_long()) return true;
    has_told = true;
    const std::string sentence = fmt::format(
        "millrace: rank {} on host {} (process {}) has been stopped by a signal {}.\n", place.rank,
        host_of_this_process(), rank, describe_doing(page_->activity.data()));
    say(sentence, {launcher_errors, STDERR_FILENO});
    end_launchers(launchers, {{rank, read_process(rank).start}}, kLauncherPatience);
    return false;
  };
  std::optional<int> own_status;
  std::optional<uint64_t> limit;
  const auto waits_for_others = [&] {
    limit = memory_limit(rank);  // which nobody knows any more once its parent has heard of its end
    own_status = status_of_ended(rank, own);
    return may_be_answer(own_status);
  };
  const RankEnds::Ends seen = ends.wait(is_watched, waits_for_others);
  if (has_told) ::_exit(0);
  if (!own_status) own_status = status_of_ended(rank, own);
  const Ended told = {{place.rank, rank, own_status},
                      page_->activity.data(),
                      {},
                      page_->told_to_end && is_ended_by(own_status, {SIGKILL})};
  Ended ended = find_first(told, seen);
  if (describe_rank_end(ended.first.status).empty() || !seen.own_is_first) ::_exit(0);
  if (seen.other_may_tell) ::usleep(kOthersTell);
  if (!takes_the_word(job.name())) ::_exit(0);
  if (!page_->silent) {
    const std::optional<int> status = ended.first.status;
    const bool short_of_memory = status && WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL &&
                                 ended_for_memory() > memory_ends;
    const std::string more = fmt::format(
        "{}{}{}.\n",
        limit && ended.first.process == rank
            ? fmt::format("; its memory was limited to {}", format_bytes(*limit))
            : "",
        short_of_memory ? "; the system has ended processes for want of memory meanwhile" : "",
        starters.describe_end());
    const auto sentence = [&] { return fmt::format("millrace: {}{}", describe_end(ended), more); };
    // What a rank writes passes through launchers, which may end before they have passed it on. One
    // whose launcher ended it because of another host passes on nothing any more, as it should. But
    // daemons also fall apart over a rank that is lost while they join them: nobody can tell then.
    const bool is_maybe_answer = place.local_ranks < place.ranks && may_be_answer(own_status);
    bool is_told = say(sentence(), {is_maybe_answer ? STDERR_FILENO : launcher_errors});
    if (!is_told && is_maybe_answer && (ended.told_to_end || !ended.activity.empty())) ::_exit(1);
    if (!is_told && is_maybe_answer && ended.rivals.empty()) ended.rivals.push_back({});
    if (!is_told) is_told = say(sentence(), {is_maybe_answer ? launcher_errors : STDERR_FILENO});
    if (!is_told) ::_exit(1);
  }
  ::close(STDERR_FILENO);
  ::close(launcher_errors);
  if (!page_->silent) end_launchers(launchers, {}, kLauncherPatience);
  ends.wait_for_others(kToldMilliseconds);
  ::_exit(0);
}

RankWitness::~RankWitness() {
  if (process_ > 0 && !page_->silent) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (page_ != nullptr) ::munmap(page_, sizeof(Page));
  for (const int sign : signs_) {
    if (sign >= 0) ::close(sign);
  }
}

void RankWitness::set_activity(const std::string& what) {
  if (page_ == nullptr) return;
  const std::lock_guard lock(page_->mutex);
  const size_t length = std::min(what.size(), page_->activity.size() - 1);
  ::memcpy(page_->activity.data(), what.data(), length);
  page_->activity[length] = '\0';
}

std::string RankWitness::activity() const {
  if (page_ == nullptr) return "";
  const std::lock_guard lock(page_->mutex);
  return page_->activity.data();
}

void RankWitness::expect_end() {
  if (page_ != nullptr) page_->told_to_end = true;
}

void RankWitness::set_heard(bool heard) {
  if (page_ != nullptr) page_->heard = heard;
}

void RankWitness::be_silent() {
  if (page_ != nullptr) page_->silent = true;
}

}  // namespace millrace::comm
