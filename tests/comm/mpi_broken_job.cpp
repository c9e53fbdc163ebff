// A job of which rank 1 breaks in the way its argument says: fail, throw, hang or kill. The others
// are in the middle of a collective. Each rank that can prints the error it ends with. With
// `refuse`, rank 1 ends with status 2 before the others have come so far.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/mpi_group.h"

namespace millrace::comm {
namespace {

void break_down(const std::string& way, Group& world) {
  if (way == "kill") std::raise(SIGKILL);
  if (way == "hang") std::this_thread::sleep_for(std::chrono::minutes(5));
  if (way == "fail") world.fail("out of memory");
  fail_job("out of memory");
}

int refuse(MpiSession& session) {
  if (session.rank() != 1) std::this_thread::sleep_for(std::chrono::minutes(5));
  session.expect_no_answer(2);
  return 2;
}

int run(const std::string& way) {
  MpiSession session;
  if (way == "refuse") return refuse(session);
  Group world = mpi_world(session);
  world.set_deadline(2);
  std::vector<float> data(3'000'000, 1.0f);
  try {
    for (int step = 0; step < 1000; ++step) {
      if (session.rank() == 1 && step == 3) break_down(way, world);
      world.all_reduce(std::span(data));
    }
  } catch (const JobError& error) {
    std::printf("ends with: %s\n", error.what());
    std::fflush(stdout);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace millrace::comm

int main(int argc, char** argv) { return millrace::comm::run(argc > 1 ? argv[1] : "fail"); }
