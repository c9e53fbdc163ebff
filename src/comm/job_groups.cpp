#include "comm/job_groups.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/local_group.h"

namespace millrace::comm {

JobGroups::JobGroups(std::vector<int> devices, MpiSession* session)
    : devices_(std::move(devices)), session_(session), rank_(session ? session->rank() : 0) {
  const int ranks = session ? session->size() : 1;
  if (this->ranks() != ranks) {
    fail_job("The job has {} ranks, but devices are given for {}.", ranks, this->ranks());
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (this->devices(rank) < 1) fail_job("Rank {} has {} devices.", rank, this->devices(rank));
  }
}

std::vector<Member> JobGroups::all() const {
  std::vector<Member> members;
  for (int rank = 0; rank < ranks(); ++rank) {
    for (int device = 0; device < devices(rank); ++device) members.push_back({rank, device});
  }
  return members;
}

std::string JobGroups::name(const Member& member) const {
  const std::string device = fmt::format("device {}:{}", member.rank, member.device);
  return session_ == nullptr ? device
                             : fmt::format("{} of {}", device, session_->name(member.rank));
}

std::vector<Group> JobGroups::make(const std::vector<Member>& members, int label) {
  return make(members, true, label);
}

std::vector<Group> JobGroups::make_for_messages(const std::vector<Member>& members, int label) {
  return make(members, false, label);
}

std::vector<Group> JobGroups::make(const std::vector<Member>& members, bool sums, int label) {
  check(members);
  MpiMembers described = {.ranks = {}, .names = {}, .sums = sums};
  for (const Member& member : members) {
    described.ranks.push_back(member.rank);
    described.names.push_back(name(member));
  }
  if (std::find(described.ranks.begin(), described.ranks.end(), rank_) == described.ranks.end()) {
    return {};
  }
  std::vector<Group> handles =
      session_ == nullptr
          ? make_local_groups(static_cast<int>(members.size()), std::move(described.names))
          : mpi_groups(*session_, described, label);
  const std::lock_guard lock(mutex_);
  groups_.push_back(handles.front());
  if (!failure_.empty()) handles.front().stop(failure_);
  return handles;
}

void JobGroups::stop(const std::string& sentence) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = sentence;
  for (Group& group : groups_) group.stop(sentence);
}

std::string JobGroups::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void JobGroups::check(const std::vector<Member>& members) const {
  if (members.empty()) fail_job("A group needs at least one member.");
  for (size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    if (member.rank < 0 || member.rank >= ranks() || member.device < 0 ||
        member.device >= devices(member.rank)) {
      fail_job("A group names device {}:{}, which the job does not have.", member.rank,
               member.device);
    }
    if (std::find(members.begin(), members.begin() + static_cast<int64_t>(i), member) !=
        members.begin() + static_cast<int64_t>(i)) {
      fail_job("A group names device {}:{} twice.", member.rank, member.device);
    }
  }
}

}  // namespace millrace::comm
