// Speed of all-reduce: all_reduce_bench [MEBIBYTES] [ROUNDS].
//
// Started alone: two members in this process, against two threads that copy as many bytes with
// memcpy. Started by mpirun with two or more ranks: against plain MPI_Allreduce. The two take
// turns, medians are compared. Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "all_reduce_peer.h"
#include "base/json.h"
#include "base/parallel.h"
#include "comm/launcher.h"
#include "comm/local_group.h"
#include "comm/mpi_group.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& body) {
  const Clock::time_point start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Times body(member) on two threads at once, from the moment both are there.
template <typename Body>
double on_two_threads(std::vector<comm::Group>& groups, Body&& body) {
  double seconds = 0;
  std::vector<std::thread> threads;
  for (int member = 0; member < 2; ++member) {
    threads.emplace_back([&, member] {
      set_team_size(1);
      comm::Group& group = groups[static_cast<size_t>(member)];
      group.barrier();
      const double own = seconds_of([&] {
        body(member);
        group.barrier();
      });
      if (member == 0) seconds = own;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return seconds;
}

Json measure_in_process(int64_t bytes, int rounds) {
  const auto count = static_cast<size_t>(bytes) / sizeof(float);
  std::vector<std::vector<float>> data(2, std::vector<float>(count, 1.0f));
  std::vector<std::vector<float>> copies(2, std::vector<float>(count, 0.0f));
  std::vector<comm::Group> groups = comm::make_local_groups(2);
  std::vector<double> reducing;
  std::vector<double> copying;
  for (int round = 0; round < rounds + 1; ++round) {
    const double copy = on_two_threads(groups, [&](int member) {
      std::memcpy(copies[member].data(), data[member].data(), count * sizeof(float));
    });
    const double reduce = on_two_threads(
        groups, [&](int member) { groups[member].all_reduce(std::span(data[member])); });
    if (round == 0) continue;  // the first pays for the pages
    copying.push_back(copy);
    reducing.push_back(reduce);
  }
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  return {{"transport", "in-process"},
          {"members", 2},
          {"bytes", bytes},
          {"all_reduce_seconds", median(reducing)},
          {"all_reduce_gigabytes_per_second", gigabytes / median(reducing)},
          {"memory_copy_seconds", median(copying)},
          {"memory_copy_gigabytes_per_second", gigabytes / median(copying)},
          {"ratio", median(copying) / median(reducing)}};
}

Json measure_processes(const comm::MpiSession& session, int64_t bytes, int rounds) {
  set_team_size(1);
  std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float), 1.0f);
  comm::Group world = comm::mpi_world(session);
  std::vector<double> ours;
  std::vector<double> plain;
  for (int round = 0; round < rounds + 1; ++round) {
    std::fill(data.begin(), data.end(), 1.0f);
    world.barrier();
    const double peer = seconds_of([&] { plain_mpi_all_reduce(data); });
    std::fill(data.begin(), data.end(), 1.0f);
    world.barrier();
    const double own = seconds_of([&] { world.all_reduce(std::span(data)); });
    if (round == 0) continue;
    plain.push_back(peer);
    ours.push_back(own);
  }
  return {{"transport", session.mpi_version()},
          {"members", world.size()},
          {"bytes", bytes},
          {"all_reduce_seconds", median(ours)},
          {"all_reduce_gigabytes_per_second", 1e-9 * static_cast<double>(bytes) / median(ours)},
          {"plain_mpi_seconds", median(plain)},
          {"ratio", median(plain) / median(ours)}};
}

int run(int argc, char** argv) {
  const int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 256) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  if (bytes < 1 || bytes > int64_t{1} << 32 || rounds < 1) {
    std::fputs("usage: all_reduce_bench [MEBIBYTES, 1 to 4096] [ROUNDS, at least 1]\n", stderr);
    return 2;
  }
  if (comm::launched_ranks() == 1) {
    std::puts(measure_in_process(bytes, rounds).dump(2).c_str());
    return 0;
  }
  const comm::MpiSession session;
  const Json result = measure_processes(session, bytes, rounds);
  if (session.rank() == 0) std::puts(result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  try {
    return millrace::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "all_reduce_bench: %s\n", error.what());
    return 1;
  }
}
