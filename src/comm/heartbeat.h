// Ranks tell each other that they are alive, and all of them when one is not.
#pragma once

#include <memory>
#include <string>

#include "comm/beats.h"
#include "comm/job_groups.h"
#include "comm/mpi_group.h"

namespace millrace::comm {

// A thread in each rank that exchanges beats with all others, so that a computation of minutes is
// not mistaken for a rank that hangs. When a rank falls silent, fails or leaves, every group of
// every rank ends with one sentence that names it and what it last did; calls that wait in a group
// throw it. A job of one rank has a heartbeat that does nothing. Where the session has had the
// ranks exchange beats since they were joined, these are taken over, with their own options.
//
// Owned by whoever owns the job, and ended before the groups and the session that it borrows. All
// ranks make one at about the same time; the functions may be called from any thread.
class Heartbeat {
 public:
  Heartbeat(MpiSession& session, JobGroups& groups, HeartbeatOptions options = {});

  // Without `finish` or `fail` before, the other ranks are told that this one left too early.
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // What this rank is doing, for example "step 12", in case it falls silent.
  void set_activity(const std::string& what);

  // Ends the job everywhere with "rank 1 on host b failed: REASON", unless it has ended before.
  // Returns once the others were told, after a second at the latest.
  void fail(const std::string& reason) noexcept;

  // Waits until all ranks have finished. Throws JobError if the job fails meanwhile.
  void finish();

 private:
  std::unique_ptr<Beats> own_;  // unless the session has some
  Beats* beats_ = nullptr;      // null for a job of one rank
  MpiSession* session_ = nullptr;
};

}  // namespace millrace::comm
