// What an MPI does for the program, from behind a plug-in: the program itself links none.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/beats.h"
#include "comm/mpi_group.h"
#include "comm/transport.h"

namespace millrace::comm {

// The processes of a job as one of them sees them; names are "rank 1 on host b".
struct MpiProcesses {
  int rank = 0;
  int size = 1;
  std::vector<std::string> names;
};

// One MPI. A plug-in is a shared library `libmillrace_FAMILY.so` that exports kMpiModuleFunction;
// it is compiled from the same sources as the program, which `millrace_mpi_module` checks by the
// version. The program has at most one, from the start of MPI to its end, and calls it as
// MpiSession says.
class MpiModule {
 public:
  virtual ~MpiModule() = default;

  // "Open MPI v4.1.4".
  virtual std::string version() const = 0;

  // Starts MPI. Throws InputError if it cannot serve several threads, or if it sees one process
  // where the launcher started several.
  virtual MpiProcesses start(int launched_ranks) = 0;

  // Ends MPI when all ranks have come here; after a while, which is short if the rank ends with a
  // `status` other than 0, ends the whole job with that status, which may be set meanwhile.
  // Before that `on_late` is called if the status is still 0.
  virtual void end(const std::atomic<int>& status, const std::function<void()>& on_late) = 0;

  // This rank's ends of a group that spans several, in the order of the members.
  virtual std::vector<std::unique_ptr<Transport>> join(const MpiMembers& members, int rank,
                                                       int label) = 0;

  // `on_failure` is called once, from any thread, when the job fails.
  using OnFailure = std::function<void(const std::string& sentence)>;
  virtual std::unique_ptr<Beats> make_beats(const MpiProcesses& processes, HeartbeatOptions options,
                                            OnFailure on_failure) = 0;
};

// Null if the plug-in is of another version than the program that asks.
using MpiModuleFunction = MpiModule* (*)(const char* program_version);
inline constexpr const char* kMpiModuleFunction = "millrace_mpi_module";

}  // namespace millrace::comm
