// The twin of mpi_group.cpp for builds without MPI.
#include "base/error.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_group.h"

namespace millrace {

bool mpi_available() { return false; }

std::string mpi_version() { return "none"; }

MpiSession::MpiSession() : names_({"rank 0"}) {
  if (launched_ranks() == 1) return;
  fail_input(
      "This build has no MPI but was started as one of {} ranks; build with "
      "-DMILLRACE_MPI=openmpi or mpich, or start it without mpirun.",
      launched_ranks());
}

MpiSession::~MpiSession() {}

std::vector<Group> mpi_groups(const MpiSession&, const MpiMembers& members, int) {
  for (const int rank : members.ranks) {
    if (rank != 0) fail_job("A job without MPI has rank 0 alone, and no rank {}.", rank);
  }
  return make_local_groups(static_cast<int>(members.ranks.size()), members.names);
}

Group mpi_group(const MpiSession& session, const std::vector<int>& ranks, int label) {
  return mpi_groups(session, {ranks, {session.name(0)}}, label)[0];
}

Group mpi_world(const MpiSession& session) { return mpi_group(session, {0}); }

}  // namespace millrace
