#include "comm/rank_watch.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "comm/job_processes.h"
#include "comm/launchers.h"
#include "comm/rank_status.h"

namespace millrace::comm {
namespace {

constexpr double kLookSeconds = 0.25;
constexpr int kSearchEvery = 4;  // looks

// Seconds that the first thread of a process, which joins the others, has had a core, and those
// that it could have run but had to wait for one; both 0 where the system does not count them.
struct CoreTimes {
  double ran = 0;
  double delayed = 0;
  double turns = 0;  // in which it ran
};

CoreTimes core_times_of(pid_t process) {
  constexpr double kNanosecond = 1e-9;
  const std::vector<std::string> words = split(read_process_file(process, "schedstat"), ' ');
  if (words.size() < 3) return {};
  return {std::atof(words[0].c_str()) * kNanosecond, std::atof(words[1].c_str()) * kNanosecond,
          std::atof(words[2].c_str())};
}

// By how much they have grown. One that runs but for moments only looks now and then whether the
// others have come, and would be no further with a core of its own.
CoreTimes growth(pid_t process, CoreTimes& times) {
  const CoreTimes before = std::exchange(times, core_times_of(process));
  if (before.ran == 0 || times.ran == 0) return {};
  constexpr double kMoment = 0.0002;
  const CoreTimes grown = {times.ran - before.ran, times.delayed - before.delayed,
                           times.turns - before.turns};
  return {grown.ran, grown.ran < kMoment * grown.turns ? 0 : grown.delayed, grown.turns};
}

struct Peer {
  pid_t process = 0;
  int rank = 0;
  std::string start;
  std::string host;  // " on host b" if it is this one
  int handle = -1;
  int looks_stopped = 0;
  int looks_gone = 0;
  CoreTimes times;

  Peer() = default;
  ~Peer() {
    if (handle >= 0) ::close(handle);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void look() {
    const ProcessFacts facts = read_process(process);
    const bool there = facts.start == start && facts.state != 'Z' && facts.state != 'X';
    looks_stopped = there && facts.state == 'T' ? looks_stopped + 1 : 0;
    looks_gone = there ? 0 : looks_gone + 1;
  }

  // "rank 1 on host b (process 7) was ended by signal 9 (Killed)".
  std::string describe_loss(bool stopped) const {
    std::string end = "has been stopped by a signal";
    if (!stopped) end = describe_rank_end(status_of_ended(process, handle));
    return fmt::format("rank {}{} (process {}) {}", rank, host, process,
                       end.empty() ? "is gone" : end);
  }
};

// Processes that a rank has started are younger than the rank.
bool is_rank_itself(const std::map<pid_t, Peer>& peers, const Peer& peer) {
  return std::none_of(peers.begin(), peers.end(), [&](const auto& other) {
    return other.second.rank == peer.rank &&
           std::atoll(other.second.start.c_str()) < std::atoll(peer.start.c_str());
  });
}

// The other ranks of this machine, by process.
void search(const JobMark& mark, int own_rank, std::map<pid_t, Peer>& peers) {
  const auto is_known = [&](pid_t process) { return peers.contains(process); };
  for (const RankProcess& found : find_rank_processes(mark, own_rank, is_known)) {
    Peer& peer = peers[found.process];
    peer.process = found.process;
    peer.rank = found.rank;
    peer.start = found.start;
    if (is_of_this_host(found.process)) peer.host = " on host " + host_of_this_process();
    peer.handle = static_cast<int>(::syscall(SYS_pidfd_open, found.process, 0));
  }
}

int count_ranks(const std::map<pid_t, Peer>& peers) {
  std::set<int> ranks;
  for (const auto& [process, peer] : peers) ranks.insert(peer.rank);
  return static_cast<int>(ranks.size());
}

// How many times longer things take than on an idle host.
double busyness() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return 1;
  return std::clamp(load / static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)), 1.0, 6.0);
}

// How long MPI has been joining the ranks, while this process itself was at work. What others take
// of the host's cores does not count; ranks that wait for each other may do so at work.
class JoinClock {
 public:
  // After a round of so many seconds of the watch.
  void pass(double seconds, std::map<pid_t, Peer>& peers, int other_ranks) {
    CoreTimes all = growth(::getpid(), times_);
    for (auto& [process, peer] : peers) {
      const CoreTimes each = growth(process, peer.times);
      all.ran += each.ran;
      all.delayed = std::max(all.delayed, each.delayed);
    }
    waited_ += seconds;
    if (times_.ran > 0 && count_ranks(peers) >= other_ranks) {
      undisturbed_ += std::clamp(std::max(seconds - all.delayed, all.ran), 0.0, seconds);
    }
  }

  double waited() const { return waited_; }
  bool is_over(double limit) const { return undisturbed_ > limit || waited_ > limit * busyness(); }

 private:
  CoreTimes times_;
  double waited_ = 0;
  double undisturbed_ = 0;
};

}  // namespace

RankWatch::RankWatch(const LaunchPlace& place, std::function<void(int, const std::string&)> on_lost,
                     RankWatchOptions options)
    : place_(place),
      on_lost_(std::move(on_lost)),
      options_(options),
      thread_([this] { watch(); }) {}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankWatch::set_joined() {
  const std::lock_guard lock(mutex_);
  joined_ = true;
}

void RankWatch::set_ending() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
}

void RankWatch::watch() {
  using Clock = std::chrono::steady_clock;
  const JobMark mark = mark_of_this_job();
  const int long_stopped = static_cast<int>(options_.stopped / kLookSeconds);
  const int long_gone = static_cast<int>(options_.gone / kLookSeconds);
  std::map<pid_t, Peer> peers;
  JoinClock clock;
  bool is_searching = true;  // until all are there and none can come any more
  std::unique_lock lock(mutex_);
  for (int number = 0; !stopping_; ++number) {
    const bool may_not_end = !ending_;
    const bool joined = joined_;
    lock.unlock();
    const auto begin = Clock::now();
    if (is_searching && number % kSearchEvery == 0) {
      search(mark, place_.rank, peers);
      is_searching = !joined || count_ranks(peers) + 1 < place_.local_ranks;
    }
    std::string lost;
    bool is_gone = false;
    int lost_rank = -1;
    for (auto& [process, peer] : peers) {
      peer.look();
      const bool stopped = peer.looks_stopped >= long_stopped;
      const bool gone = may_not_end && peer.looks_gone > long_gone * busyness();
      if (!stopped && !(gone && is_rank_itself(peers, peer))) continue;
      lost_rank = peer.rank;
      is_gone = !stopped;
      lost = peer.describe_loss(stopped);
    }
    lock.lock();
    if (ending_ && is_gone) lost.clear();
    if (lost.empty() && !joined_ && clock.is_over(options_.joining)) {
      lost = fmt::format(
          "the {} ranks were not joined within {:.0f} seconds: rank {} on host {} waits for "
          "others, which may be stopped, or on a host that cannot be reached",
          place_.ranks, clock.waited(), place_.rank, host_of_this_process());
    }
    if (!lost.empty()) {
      lock.unlock();
      on_lost_(lost_rank, lost);
      return;
    }
    changed_.wait_for(lock, std::chrono::duration<double>(kLookSeconds),
                      [this] { return stopping_; });
    const std::chrono::duration<double> round = Clock::now() - begin;
    if (!joined)
      clock.pass(std::min(round.count(), 4 * kLookSeconds), peers, place_.local_ranks - 1);
  }
}

}  // namespace millrace::comm
