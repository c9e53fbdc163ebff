// The plug-in's side of MpiModule; compiled once for each MPI.
#include "comm/mpi_module.h"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/version.h"
#include "comm/hydra.h"
#include "comm/launcher.h"
#include "comm/launchers.h"
#include "comm/mpi_beats.h"
#include "comm/mpi_endpoint.h"
#include "comm/mpi_transport.h"

namespace millrace::comm {
namespace {

constexpr auto kLongestGoodbye = std::chrono::seconds(5);
constexpr auto kShortGoodbye = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(50);
using HostName = std::array<char, MPI_MAX_PROCESSOR_NAME>;

// "rank 1 on host b" for each rank.
std::vector<std::string> rank_names(int ranks) {
  HostName own = {};
  int length = 0;
  MPI_Get_processor_name(own.data(), &length);
  std::vector<HostName> hosts(static_cast<size_t>(ranks));
  expect_joined(MPI_Allgather(own.data(), MPI_MAX_PROCESSOR_NAME, MPI_CHAR, hosts.data(),
                              MPI_MAX_PROCESSOR_NAME, MPI_CHAR, MPI_COMM_WORLD));
  std::vector<std::string> names;
  names.reserve(hosts.size());
  for (int rank = 0; rank < ranks; ++rank) {
    names.push_back(
        fmt::format("rank {} on host {}", rank, hosts[static_cast<size_t>(rank)].data()));
  }
  return names;
}

std::chrono::seconds longest_goodbye(int status) {
  return status == 0 ? kLongestGoodbye : kShortGoodbye;
}

// Ends MPI, or the process if that takes too long; all ranks have come to
// their end by now. One that is lost even so must not leave the launcher waiting for it.
void finalize(const std::atomic<int>& status) {
  std::promise<void> done;
  std::thread watch([ended = done.get_future(), &status] {
    const auto start = std::chrono::steady_clock::now();
    while (ended.wait_for(kLook) != std::future_status::ready) {
      if (std::chrono::steady_clock::now() - start < longest_goodbye(status)) continue;
      if (status != 0) end_launchers(launchers_above());
      std::fflush(nullptr);
      std::_Exit(status);
    }
  });
  // Between hosts MPICH mostly waits for ever here, for connections that the others have closed.
  const LaunchPlace place = launch_place();
  const int hydra = place.local_ranks < place.ranks ? hydra_descriptor() : -1;
  if (hydra >= 0 && leave_hydra(hydra, longest_goodbye(status))) {
    std::fflush(nullptr);
    std::_Exit(status);
  }
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
  expect_joined(MPI_Comm_create_group(MPI_COMM_WORLD, chosen, label, &communicator));
  MPI_Group_free(&chosen);
  MPI_Group_free(&world);
  return communicator;
}

std::string library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text = {};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string whole(text.data(), static_cast<size_t>(length));
  std::string version = whole.substr(0, whole.find_first_of(",\n"));
  const size_t tab = version.find(":\t");  // "MPICH Version:<tab>4.0.2"
  if (tab == std::string::npos) return version;
  return fmt::format("{} {}", version.substr(0, version.find(' ')), version.substr(tab + 2));
}

class LinkedMpi final : public MpiModule {
 public:
  std::string version() const override { return library_version(); }

  MpiProcesses start(int launched_ranks) override {
    int provided = 0;
    MpiProcesses processes;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &processes.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &processes.size);
    const bool foreign = processes.size == 1 && launched_ranks > 1;
    if (provided == MPI_THREAD_MULTIPLE && !foreign) {
      processes.names = rank_names(processes.size);
      return processes;
    }
    MPI_Finalize();
    if (foreign) {
      fail_input(
          "This program was started as one of {} ranks, but {} finds it alone: the launcher does "
          "not serve this MPI; use its own mpirun.",
          launched_ranks, version());
    }
    fail_input("{} cannot serve several threads at once; use an MPI built with that support.",
               version());
  }

  void end(const std::atomic<int>& status, const std::function<void()>& on_late) override {
    MPI_Request everyone = MPI_REQUEST_NULL;
    MPI_Ibarrier(MPI_COMM_WORLD, &everyone);
    const auto start = std::chrono::steady_clock::now();
    int done = 0;
    while (!done) {
      MPI_Test(&everyone, &done, MPI_STATUS_IGNORE);
      if (done) break;
      if (std::chrono::steady_clock::now() - start > longest_goodbye(status)) {
        if (status == 0) on_late();
        end_launchers(launchers_above());  // the abort may not reach all hosts
        MPI_Abort(MPI_COMM_WORLD, status == 0 ? 1 : status.load());
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    finalize(status);
  }

  std::vector<std::unique_ptr<Transport>> join(const MpiMembers& members, int rank,
                                               int label) override {
    std::vector<int> processes;  // the ranks, each once
    std::vector<int> places;     // of each member's rank among them
    for (const int member_rank : members.ranks) {
      auto place = std::find(processes.begin(), processes.end(), member_rank);
      if (place == processes.end()) place = processes.insert(place, member_rank);
      places.push_back(static_cast<int>(place - processes.begin()));
    }
    const auto endpoint = std::make_shared<MpiEndpoint>(communicator_of(processes, label),
                                                        members.names, std::move(places));
    std::vector<std::unique_ptr<Transport>> transports;
    for (size_t member = 0; member < members.ranks.size(); ++member) {
      if (members.ranks[member] != rank) continue;
      transports.push_back(
          std::make_unique<MpiTransport>(endpoint, static_cast<int>(member), members.sums));
    }
    return transports;
  }

  std::unique_ptr<Beats> make_beats(const MpiProcesses& processes, HeartbeatOptions options,
                                    OnFailure on_failure) override {
    return make_mpi_beats(processes, options, std::move(on_failure));
  }
};

}  // namespace
}  // namespace millrace::comm

extern "C" __attribute__((visibility("default"))) millrace::comm::MpiModule* millrace_mpi_module(
    const char* program_version) {
  if (millrace::kVersion != program_version) return nullptr;
  return new millrace::comm::LinkedMpi();
}
