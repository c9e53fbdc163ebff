// Compiled programs and the schedule that runs them, as input of the simulator.
//
// The same rules as at run time: a device follows its row; what it sends waits for one buffer of
// its own and the receiver's slots; gradients are summed beside the kernels, one bucket after the
// other; a drained schedule begins a step when all devices have ended the one before.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "parallel/channels.h"
#include "parallel/schedule.h"
#include "planner/cluster/cluster.h"
#include "planner/simulate/simulator.h"
#include "profile/costed_program.h"
#include "runtime/trace.h"

namespace millrace::profile {

// How devices share what is theirs together. Plain data.
struct SharedHost {
  // Cores of each machine, which devices, messages and sums share; 0: devices do not need them.
  int cores = 0;
  int threads_per_device = 1;
  // The cores of each device of a machine; needed only where devices share some, as threads keep
  // to their cores while messages and sums run on any.
  std::vector<std::vector<int>> teams = {};
  // Devices of a machine that were at work together when busy_seconds were measured; 1: they are
  // not looked at.
  int busy_devices = 1;
  // The share of a link's rate that sums and messages reach.
  double collective_efficiency = 1;
  double message_efficiency = 1;
  // A device's own copying into and out of messages.
  double copy_bytes_per_second = 1e18;
};

// A job as it would run on a cluster. Borrows everything it points to.
struct SimulatedJob {
  const planner::Cluster* cluster = nullptr;
  SharedHost host;
  std::vector<std::vector<int>> devices;                    // of each stage, numbers in the cluster
  std::vector<std::vector<const CostedProgram*>> programs;  // of each member of each stage
  parallel::RouteRequest routes = {};                       // between stages
  std::function<parallel::Schedule(int64_t steps)> schedule = {};  // none: programs run whole
  int64_t steps = 1;
  // Seconds to copy a message into or out of the slot it belongs to; none: by copy rate.
  std::function<double(const parallel::Route& route, bool sends)> copy_seconds = {};
};

struct ProgramSimulation {
  planner::SimulationInput input;
  std::vector<std::vector<int>> step_ends;    // items that end each step
  std::vector<runtime::TraceDevice> devices;  // of the trace: one per member of each stage
  std::vector<int> trace_device;              // of each item; -1: not shown
  std::vector<int64_t> micro_batch;           // of each item; -1: none
  std::vector<int> compute_lanes;             // of each device that works
};

ProgramSimulation build_simulation(const SimulatedJob& job);

struct SimulatedSteps {
  std::vector<double> seconds;  // of each step, as a training run tells them
  double median = 0;            // without the first, as summaries have it
  double bubble = 0;            // mean share of time in which devices compute nothing
};

SimulatedSteps steps_of(const ProgramSimulation& simulation,
                        const planner::SimulationResult& result);

// The same kind of log as a real run gives: work, waits with their causes, communication beside.
runtime::TraceLog trace_log(const ProgramSimulation& simulation,
                            const planner::SimulationResult& result);

}  // namespace millrace::profile
