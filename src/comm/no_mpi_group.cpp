// The twin of mpi_group.cpp for builds without MPI.
#include "base/error.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_group.h"

namespace millrace {

bool mpi_available() { return false; }

std::string mpi_version() { return "none"; }

MpiSession::MpiSession() {
  if (launched_ranks() == 1) return;
  fail_input(
      "This build has no MPI but was started as one of {} ranks; build with "
      "-DMILLRACE_MPI=openmpi or mpich, or start it without mpirun.",
      launched_ranks());
}

MpiSession::~MpiSession() {}

Group mpi_group(const MpiSession&, const std::vector<int>& ranks, int) {
  if (ranks != std::vector<int>{0}) fail_job("A job without MPI has rank 0 alone.");
  return make_local_groups(1, {"rank 0"})[0];
}

Group mpi_world(const MpiSession& session) { return mpi_group(session, {0}); }

}  // namespace millrace
