// A job with a heartbeat. Its argument says what happens to rank 1 in the middle:
//   fail   it says so               throw  it leaves without a word   leave  it returns early
//   stop   SIGSTOP                  kill   SIGKILL
//   compute  nothing: it computes for longer than the silence that is allowed
// Each rank that can prints how it ends.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "comm/heartbeat.h"

namespace millrace::comm {
namespace {

// True if the rank is to go on.
bool suffer(const std::string& way, Heartbeat& heartbeat) {
  if (way == "kill") std::raise(SIGKILL);
  if (way == "stop") std::raise(SIGSTOP);
  if (way == "throw") fail_job("thrown");
  if (way == "fail") heartbeat.fail("out of memory in step 3");
  if (way == "compute") {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(6500);
    while (std::chrono::steady_clock::now() < end) continue;
  }
  return way != "leave";
}

void work(const std::string& way, MpiSession& session, Group& group, Heartbeat& heartbeat) {
  std::vector<float> data(300'000, 1.0f);
  for (int step = 0; step < 10; ++step) {
    heartbeat.set_activity("step " + std::to_string(step));
    if (step == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // a beat tells the step
      if (session.rank() == 1 && !suffer(way, heartbeat)) return;
    }
    group.all_reduce(std::span(data));
  }
  heartbeat.finish();
}

int run(const std::string& way) {
  MpiSession session;
  try {
    JobGroups groups(std::vector<int>(static_cast<size_t>(session.size()), 1), &session);
    Heartbeat heartbeat(session, groups);
    Group group = groups.make(groups.all())[0];
    work(way, session, group, heartbeat);
  } catch (const JobError& error) {
    std::printf("rank %d ends with: %s\n", session.rank(), error.what());
    std::fflush(stdout);
    return 1;
  }
  std::printf("rank %d ends well\n", session.rank());
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace millrace::comm

int main(int argc, char** argv) { return millrace::comm::run(argc > 1 ? argv[1] : "fail"); }
