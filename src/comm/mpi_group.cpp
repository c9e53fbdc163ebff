#include "comm/mpi_group.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_transport.h"

namespace millrace {
namespace {

constexpr auto kLongestGoodbye = std::chrono::seconds(5);
constexpr auto kShortGoodbye = std::chrono::seconds(1);
using HostName = std::array<char, MPI_MAX_PROCESSOR_NAME>;

// "rank 1 on host b" for each rank.
std::vector<std::string> rank_names(int ranks) {
  HostName own = {};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<HostName> hosts(static_cast<size_t>(ranks));
  MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, hosts.data(), MPI_MAX_PROCESSOR_NAME,
                MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    names.push_back(
        fmt::format("rank {} on host {}", rank, hosts[static_cast<size_t>(rank)].data()));
  }
  return names;
}

// Ends MPI, or the process if that takes too long, which MPICH over TCP may; all ranks have come to
// their end by now.
void finalize(int status) {
  std::promise<void> done;
  std::thread watch([ended = done.get_future(), status] {
    if (ended.wait_for(kLongestGoodbye) == std::future_status::ready) return;
    std::fflush(nullptr);
    std::_Exit(status);
  });
  MPI_Finalize();
  done.set_value();
  watch.join();
}

// A communicator of these ranks, each named once.
MPI_Comm communicator_of(const std::vector<int>& ranks, int label) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &chosen);
  MPI_Comm_create_group(MPI_COMM_WORLD, chosen, label, &communicator);
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  return communicator;
}

}  // namespace

bool mpi_available() { return true; }

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<size_t>(length));
  std::string version = whole.substr(0, whole.find_first_of(",\n"));
  const size_t tab = version.find(":\t");  // "MPICH Version:<tab>4.0.2"
  if (tab == std::string::npos) return version;
  return fmt::format("{} {}", version.substr(0, version.find(' ')), version.substr(tab + 2));
}

MpiSession::MpiSession() {
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  const bool foreign = size_ == 1 && launched_ranks() > 1;
  if (provided == MPI_THREAD_MULTIPLE && !foreign) {
    names_ = rank_names(size_);
    return;
  }
  const std::string version = mpi_version();
  MPI_Finalize();
  if (foreign) {
    fail_input(
        "This build uses {} but was started as one of {} ranks by the launcher of another MPI; "
        "start it with the mpirun that belongs to it.",
        version, launched_ranks());
  }
  fail_input("{} cannot serve several threads at once; use an MPI built with that support.",
             version);
}

MpiSession::~MpiSession() {
  MPI_Request everyone = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &everyone);
  const auto start = std::chrono::steady_clock::now();
  int done = 0;
  while (!done) {
    MPI_Test(&everyone, &done, MPI_STATUS_IGNORE);
    if (done) break;
    const auto limit = patient_ ? kLongestGoodbye : kShortGoodbye;
    if (std::chrono::steady_clock::now() - start > limit) {
      MPI_Abort(MPI_COMM_WORLD, 1);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  finalize(patient_ ? 0 : 1);
}

std::vector<Group> mpi_groups(const MpiSession& session, const MpiMembers& members, int label) {
  std::vector<int> processes;  // the ranks, each once
  std::vector<int> places;     // of each member's rank among them
  for (const int rank : members.ranks) {
    auto place = std::find(processes.begin(), processes.end(), rank);
    if (place == processes.end()) place = processes.insert(place, rank);
    places.push_back(static_cast<int>(place - processes.begin()));
  }
  if (std::find(processes.begin(), processes.end(), session.rank()) == processes.end()) {
    fail_job("Rank {} asks for a group that it is not in.", session.rank());
  }
  if (processes.size() == 1) {
    return make_local_groups(static_cast<int>(members.ranks.size()), members.names);
  }
  const auto endpoint = std::make_shared<MpiEndpoint>(communicator_of(processes, label),
                                                      members.names, std::move(places));
  std::vector<Group> groups;
  for (size_t member = 0; member < members.ranks.size(); ++member) {
    if (members.ranks[member] != session.rank()) continue;
    groups.emplace_back(
        std::make_unique<MpiTransport>(endpoint, static_cast<int>(member), members.sums));
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
