#include "comm/rank_watch.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "comm/launchers.h"

namespace millrace::comm {
namespace {

constexpr double kLookSeconds = 0.25;
constexpr int kSearchEvery = 4;  // looks
constexpr std::array<const char*, 2> kJobVariables = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
constexpr std::array<const char*, 3> kRankVariables = {"OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                                       "SLURM_PROCID"};

// The value of a variable in a block as /proc/N/environ has it.
std::optional<std::string> variable_in(const std::string& block, const std::string& name) {
  const std::string key = name + "=";
  for (size_t begin = 0; begin < block.size();) {
    const size_t end = std::min(block.find('\0', begin), block.size());
    if (block.compare(begin, key.size(), key) == 0) {
      return block.substr(begin + key.size(), end - begin - key.size());
    }
    begin = end + 1;
  }
  return {};
}

bool is_below(pid_t number, pid_t ancestor) {
  for (int depth = 0; number > 1 && depth < 32; ++depth) {
    if (number == ancestor) return true;
    number = read_process(number).parent;
  }
  return false;
}

// What tells the processes of this job from those of others.
struct JobMark {
  std::string variable;  // and its value, where the launcher sets one
  std::string value;
  pid_t launcher = 0;  // the outermost above this process

  bool fits(pid_t number, const std::string& environment) const {
    if (!variable.empty()) return variable_in(environment, variable) == value;
    return launcher > 0 && is_below(number, launcher);
  }
};

JobMark mark_of_this_job() {
  JobMark mark;
  for (const char* name : kJobVariables) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    mark.variable = name;
    mark.value = value;
    return mark;
  }
  const std::vector<ProcessMark> launchers = launchers_above();
  if (!launchers.empty()) mark.launcher = launchers.back().number;
  return mark;
}

std::string host_of_this_process() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Hosts may be namespaces of one machine.
bool is_of_this_host(pid_t process) {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/ns/uts", error);
  return own == std::filesystem::read_symlink(fmt::format("/proc/{}/ns/uts", process), error);
}

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
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto number = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (number <= 0 || number == ::getpid() || peers.contains(number)) continue;
    const std::string environment = read_process_file(number, "environ");
    if (environment.empty()) continue;
    for (const char* name : kRankVariables) {
      const auto rank = variable_in(environment, name);
      if (!rank) continue;
      const int value = std::atoi(rank->c_str());
      if (value != own_rank && mark.fits(number, environment)) {
        peers[number] = {value, read_process(number).start,
                         is_of_this_host(number) ? " on host " + host_of_this_process() : "", 0, 0};
      }
      break;
    }
  }
}

// How many times longer things take than on an idle host.
double busyness() {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) return 1;
  return std::clamp(load / static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)), 1.0, 6.0);
}

}  // namespace

std::string describe_job_mark() {
  const JobMark mark = mark_of_this_job();
  const std::string launcher =
      mark.launcher > 0 ? fmt::format("{}-{}", mark.launcher, read_process(mark.launcher).start)
                        : "";
  return fmt::format("{}-{}{}", ::getuid(), mark.value, launcher);
}

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
