#include "comm/mpi_group.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_plugin.h"

namespace millrace {

MpiSession::MpiSession() : names_({"rank 0"}) {
  const std::optional<MpiFamily> family = launcher_family();
  if (!family) return;
  module_ = open_mpi_plugin(*family);
  const MpiProcesses processes = module_->start(launched_ranks());
  rank_ = processes.rank;
  size_ = processes.size;
  names_ = processes.names;
}

MpiSession::~MpiSession() {
  if (module_) module_->end(patient_);
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
  for (auto& transport : session.module()->join(members, session.rank(), label)) {
    groups.emplace_back(std::move(transport));
  }
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

}  // namespace millrace
