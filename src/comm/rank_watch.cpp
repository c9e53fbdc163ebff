#include "comm/rank_watch.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

#include "comm/job_processes.h"
#include "comm/launchers.h"

namespace millrace::comm {
namespace {

constexpr double kLookSeconds = 0.25;
constexpr int kSearchEvery = 4;  // looks

struct Peer {
  int rank = 0;
  std::string start;
  std::string host;  // " on host b" if it is this one
  int looks_stopped = 0;
  int looks_gone = 0;
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
    peers[found.process] = {
        found.rank, found.start,
        is_of_this_host(found.process) ? " on host " + host_of_this_process() : "", 0, 0};
  }
}

// How many times longer things take than on an idle host.
double busyness() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return 1;
  return std::clamp(load / static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)), 1.0, 6.0);
}

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
  double waited = 0;  // while this process itself was at work
  std::unique_lock lock(mutex_);
  for (int number = 0; !stopping_; ++number) {
    const bool may_not_end = !ending_;
    lock.unlock();
    const auto begin = Clock::now();
    if (number % kSearchEvery == 0) search(mark, place_.rank, peers);
    std::string lost;
    int lost_rank = -1;
    for (auto& [process, peer] : peers) {
      const ProcessFacts facts = read_process(process);
      const bool there = facts.start == peer.start && facts.state != 'Z' && facts.state != 'X';
      peer.looks_stopped = there && facts.state == 'T' ? peer.looks_stopped + 1 : 0;
      peer.looks_gone = there ? 0 : peer.looks_gone + 1;
      const bool stopped = peer.looks_stopped >= long_stopped;
      const bool gone = may_not_end && peer.looks_gone > long_gone && is_rank_itself(peers, peer);
      if (!stopped && !gone) continue;
      lost_rank = peer.rank;
      lost = fmt::format("rank {}{} (process {}) {}", peer.rank, peer.host, process,
                         stopped ? "has been stopped by a signal" : "is gone");
    }
    lock.lock();
    if (ending_ && lost.ends_with("is gone")) lost.clear();
    if (lost.empty() && !joined_ && waited > options_.joining * busyness()) {
      lost = fmt::format(
          "the {} ranks were not joined within {:.0f} seconds: rank {} on host {} waits for "
          "others, which may be stopped, or on a host that cannot be reached",
          place_.ranks, waited, place_.rank, host_of_this_process());
    }
    if (!lost.empty()) {
      lock.unlock();
      on_lost_(lost_rank, lost);
      return;
    }
    changed_.wait_for(lock, std::chrono::duration<double>(kLookSeconds),
                      [this] { return stopping_; });
    const std::chrono::duration<double> round = Clock::now() - begin;
    waited += std::min(round.count(), 4 * kLookSeconds);
  }
}

}  // namespace millrace::comm
