// The processes of a job on one machine, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/launchers.h"

namespace millrace::comm {

// What tells the processes of a job from those of others.
struct JobMark {
  std::string variable;  // and its value, where the launcher sets one
  std::string value;
  pid_t launcher = 0;  // the outermost above the rank, where it does not

  // `environment` as /proc/N/environ has it.
  bool fits(pid_t process, const std::string& environment) const;

  // The same in all ranks of the job on a machine, and in no other job's.
  std::string name() const;
};

JobMark mark_of_this_job();

// A process that a launcher told its rank, or one that inherited it.
struct RankProcess {
  int rank = 0;
  pid_t process = 0;
  std::string start;  // in clock ticks since the system's start
};

// Those of the job's ranks other than `own_rank`, but for processes that `is_known` holds for.
std::vector<RankProcess> find_rank_processes(const JobMark& mark, int own_rank,
                                             const std::function<bool(pid_t)>& is_known);

// All of the job on this machine but those of this rank, for `end_launchers`.
std::vector<ProcessMark> other_ranks();

std::string host_of_this_process();

// Whether the process has this one's host name: hosts may be namespaces of one machine.
bool is_of_this_host(pid_t process);

}  // namespace millrace::comm
