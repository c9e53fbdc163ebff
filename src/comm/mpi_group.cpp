#include "comm/mpi_group.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "comm/launcher.h"
#include "comm/mpi_transport.h"

namespace millrace {
namespace {

constexpr auto kLongestGoodbye = std::chrono::seconds(5);
using HostName = std::array<char, MPI_MAX_PROCESSOR_NAME>;

// "rank 1 on host b" for each member.
std::vector<std::string> member_names(MPI_Comm communicator, const std::vector<int>& ranks) {
  HostName own = {};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<HostName> hosts(ranks.size());
  MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, hosts.data(), MPI_MAX_PROCESSOR_NAME,
                MPI_CHAR, communicator);
  std::vector<std::string> names;
  for (size_t i = 0; i < ranks.size(); ++i) {
    names.push_back(fmt::format("rank {} on host {}", ranks[i], hosts[i].data()));
  }
  return names;
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
  if (provided == MPI_THREAD_MULTIPLE && !foreign) return;
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
    if (std::chrono::steady_clock::now() - start > kLongestGoodbye) MPI_Abort(MPI_COMM_WORLD, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  MPI_Finalize();
}

Group mpi_group(const MpiSession& session, const std::vector<int>& ranks, int label) {
  if (std::find(ranks.begin(), ranks.end(), session.rank()) == ranks.end()) {
    fail_job("Rank {} asks for a group that it is not in.", session.rank());
  }
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &chosen);
  MPI_Comm_create_group(MPI_COMM_WORLD, chosen, label, &communicator);
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  return Group(std::make_unique<MpiTransport>(communicator, member_names(communicator, ranks)));
}

Group mpi_world(const MpiSession& session) {
  std::vector<int> ranks(static_cast<size_t>(session.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return mpi_group(session, ranks);
}

}  // namespace millrace
