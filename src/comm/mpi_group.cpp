#include "comm/mpi_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/error.h"
#include "comm/job_processes.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_module.h"
#include "comm/mpi_plugin.h"
#include "comm/rank_watch.h"
#include "comm/rank_witness.h"

namespace millrace::comm {
namespace {

// Ends a process that has been joining others for a second although the job has failed. Lives on
// until the process ends.
void watch_joining(const std::shared_ptr<std::atomic<int>>& joining,
                   const MpiSession::LastWord& last_word, const std::string& sentence) {
  constexpr auto kLook = std::chrono::milliseconds(100);
  constexpr int kEnough = 10;
  for (int looks = 0; looks < kEnough; std::this_thread::sleep_for(kLook)) {
    looks = *joining > 0 ? looks + 1 : 0;
  }
  last_word(sentence);
}

}  // namespace

MpiSession::MpiSession(LastWord last_word) : names_({"rank 0"}), last_word_(std::move(last_word)) {
  const std::optional<MpiFamily> family = launcher_family();
  if (!family) return;
  // Before the libraries of MPI are opened, which takes long enough to be ended meanwhile.
  if (last_word_) witness_ = std::make_unique<RankWitness>(launch_place(), mark_of_this_job());
  module_ = open_mpi_plugin(*family);
  const auto lost = [this](int rank, const std::string& sentence) { lose(rank, sentence); };
  if (last_word_) watch_ = std::make_unique<RankWatch>(launch_place(), lost);
  const MpiProcesses processes = join([this] { return module_->start(launched_ranks()); });
  rank_ = processes.rank;
  size_ = processes.size;
  {
    const std::lock_guard lock(activities_mutex_);
    names_ = processes.names;
  }
  if (!last_word_) return;
  if (size_ > 1) {
    const auto failed = [this](const std::string& sentence) { fail(sentence); };
    beats_ = join([&] { return module_->make_beats(processes, HeartbeatOptions(), failed); });
  }
  watch_->set_joined();
  set_heard(true);
}

MpiSession::~MpiSession() {
  if (watch_) watch_->set_ending();
  end_beats();
  if (!module_) return;
  set_heard(false);
  module_->end(status_, [this] {
    if (!last_word_) return;
    last_word_(
        fmt::format("{} has waited for seconds for the other ranks to end; one of them is stopped, "
                    "or on a host "
                    "that cannot be reached.",
                    names_[static_cast<size_t>(rank_)]));
  });
}

void MpiSession::end_beats() {
  if (beats_ && !has_given_beats_ && status_ != 0) beats_->abandon();
  if (beats_ && !has_given_beats_ && status_ == 0) {
    try {
      beats_->finish();
    } catch (const JobError&) {  // NOLINT: it has been told
    }
  }
  beats_.reset();
}

Beats* MpiSession::take_beats() {
  return std::exchange(has_given_beats_, true) ? nullptr : beats_.get();
}

void MpiSession::lose(int rank, const std::string& sentence) {
  if (rank < 0) {
    fail(sentence + ".");
    return;
  }
  std::string activity;
  std::string named = sentence;
  {
    const std::lock_guard lock(activities_mutex_);
    if (activities_) activity = activities_(rank);
    // Of a rank elsewhere the watch does not know the host; the ranks have told each other.
    const std::string unnamed = fmt::format("rank {} (", rank);
    if (rank < static_cast<int>(names_.size()) && named.starts_with(unnamed)) {
      named.replace(0, unnamed.size(), names_[static_cast<size_t>(rank)] + " (");
    }
  }
  const std::string last = activity.empty() ? "while the job began" : "it was last in " + activity;
  fail(named + "; " + last + ".");
}

void MpiSession::set_activity(const std::string& what) {
  if (witness_) witness_->set_activity(what);
}

std::string MpiSession::doing() const {
  if (!witness_) return "";
  const std::string activity = witness_->activity();
  return activity.empty() ? ", while the job began" : ", in " + activity;
}

void MpiSession::set_heard(bool heard) {
  if (witness_) witness_->set_heard(heard);
}

void MpiSession::expect_end() {
  if (witness_) witness_->expect_end();
}

void MpiSession::expect_no_answer(int status) {
  status_ = status;
  if (witness_) witness_->be_silent();
}

void MpiSession::set_activities(std::function<std::string(int rank)> activities) {
  const std::lock_guard lock(activities_mutex_);
  activities_ = std::move(activities);
}

void MpiSession::fail(const std::string& sentence) {
  expect_no_answer();
  const std::lock_guard lock(mutex_);
  if (!failed_) failure_ = sentence;
  failed_ = true;
  if (listener_) listener_(sentence);
  if (!last_word_) return;
  if (!listener_) last_word_(sentence);
  std::thread(watch_joining, joining_, last_word_, sentence).detach();
}

void MpiSession::set_listener(std::function<void(const std::string& sentence)> listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
  if (listener_ && failed_) listener_(failure_);
}

std::string MpiSession::mpi_version() const { return module_ ? module_->version() : "none"; }

std::vector<Group> mpi_groups(const MpiSession& session, const MpiMembers& members, int label) {
  const auto& ranks = members.ranks;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= session.size()) {
      fail_job("A group names rank {} of a job of {}.", rank, session.size());
    }
  }
  if (std::find(ranks.begin(), ranks.end(), session.rank()) == ranks.end()) {
    fail_job("Rank {} asks for a group that it is not in.", session.rank());
  }
  const auto is_here = [&](int rank) { return rank == session.rank(); };
  if (std::all_of(ranks.begin(), ranks.end(), is_here)) {
    return make_local_groups(static_cast<int>(ranks.size()), members.names);
  }
  std::vector<Group> groups;
  auto transports =
      session.join([&] { return session.module()->join(members, session.rank(), label); });
  for (auto& transport : transports) groups.emplace_back(std::move(transport));
  return groups;
}

Group mpi_group(const MpiSession& session, const std::vector<int>& ranks, int label) {
  MpiMembers members = {ranks, {}};
  for (const int rank : ranks) members.names.push_back(session.name(rank));
  return mpi_groups(session, members, label)[0];
}

Group mpi_world(const MpiSession& session) {
  std::vector<int> ranks(static_cast<size_t>(session.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return mpi_group(session, ranks);
}

}  // namespace millrace::comm
