// The groups of a whole job, whose members are devices in one or many processes.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "comm/group.h"
#include "comm/mpi_group.h"

namespace millrace::comm {

// A device of the job: a rank, and the device's number in it.
struct Member {
  int rank = 0;
  int device = 0;

  bool operator==(const Member&) const = default;
};

// Makes the groups of a job and knows them all, so that a failure can end every one. Owned by
// whoever owns the job; the groups live at least as long as it, and it ends before the MpiSession,
// which it borrows. Without a session the job is this process alone.
//
// Any thread may call it. Groups that span ranks are made by all those ranks in the same order, or
// at the same time under different labels.
class JobGroups {
 public:
  // How many devices each rank has.
  explicit JobGroups(std::vector<int> devices, MpiSession* session = nullptr);

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(devices_.size()); }
  int devices(int rank) const { return devices_[static_cast<size_t>(rank)]; }
  // Every device, rank by rank.
  std::vector<Member> all() const;

  // "device 1:0 of rank 1 on host b".
  std::string name(const Member& member) const;

  // One handle for each of the members that live in this rank, in the order of the members; none
  // if there is no such member. Sums are taken in the order given. Each handle is for a thread of
  // its own, as the members wait for each other.
  std::vector<Group> make(const std::vector<Member>& members, int label = 0);

  // A group for `send` and `receive` between any two of the members, which takes no buffers and
  // is not for sums. One such group of the whole job serves every channel: tags tell them apart.
  std::vector<Group> make_for_messages(const std::vector<Member>& members, int label = 0);

  // Ends every group made so far and later with this sentence. Never throws or waits.
  void stop(const std::string& sentence) noexcept;

  // The first sentence that `stop` was called with, or nothing.
  std::string failure() const;

 private:
  std::vector<Group> make(const std::vector<Member>& members, bool sums, int label);
  void check(const std::vector<Member>& members) const;

  const std::vector<int> devices_;
  MpiSession* const session_;
  const int rank_;
  mutable std::mutex mutex_;
  std::vector<Group> groups_;  // one handle of each
  std::string failure_;
};

}  // namespace millrace::comm
