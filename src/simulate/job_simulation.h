// A job as input of the simulator: what its devices do in the order of its schedule, whether a
// compiled program or a description of the network says what that is.
//
// The same rules as at run time: a device follows its row; what it sends waits for one buffer of
// its own and the receiver's slots; gradients are summed beside the kernels, one bucket after the
// other; a drained schedule begins a step when all devices have ended the one before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/channels.h"
#include "parallel/schedule.h"
#include "runtime/trace.h"
#include "simulate/costed_program.h"
#include "simulate/fabric.h"

namespace millrace::simulate {

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
};

// What a member of a stage sends to a member of another with every micro-batch that both run.
struct Message {
  std::string name;
  int from_stage = 0, from_member = 0;
  int to_stage = 0, to_member = 0;
  bool gradients = false;  // sent by backward tasks, else by forward ones
  parallel::Turn from_turn = {}, to_turn = {};
  double bytes = 0;
  double rate = 0;  // bytes per second; 0: what the links between the devices give
  double sending = 0, receiving = 0;  // seconds in which a device copies it out and in
  int64_t slots = 0;                  // that the receiver keeps; 0: as many as it takes

  bool carries(int64_t micro_batch) const {
    return from_turn.has(micro_batch) && to_turn.has(micro_batch);
  }
};

// What the work of a job takes, by formula, by profile or by a fit to what others published. Plain
// data; borrows the programs.
struct CostSource {
  // Of each member of each stage; one where all members do the same at the same time.
  std::vector<std::vector<const CostedProgram*>> programs;
  std::vector<Message> messages = {};
  double collective_efficiency = 1;  // share of a link's rate that sums reach
  double packing_rate = 0;           // bytes per second of copying for sums; 0: takes no time
};

// Borrows everything it points to.
struct SimulatedJob {
  const Fabric* fabric = nullptr;
  SharedHost host = {};
  std::vector<std::vector<int>> devices = {};  // of each stage, numbers in the cluster
  CostSource costs = {};
  std::function<parallel::Schedule(int64_t steps)> schedule = {};  // none: programs run whole
  std::vector<parallel::Channel> channels = {};  // that order stages on one device; none: the usual
  int64_t steps = 1;
  // For the pace of many steps, one schedule: a step ends with its updates and no device waits for
  // all others; messages from one device to another take turns; and devices of `ssp` run what is
  // ready. Else as a run here goes.
  bool steady = false;
};

struct JobSimulation {
  SimulationInput input;
  std::vector<std::vector<int>> step_ends;    // items that end each step
  std::vector<runtime::TraceDevice> devices;  // of the trace: one per member of each stage
  std::vector<int> trace_device;              // of each item; -1: not shown
  std::vector<int64_t> micro_batch;           // of each item; -1: none
  std::vector<int> compute_lanes;             // of each device that works
  std::vector<double> standing_for;  // as many devices of its stage, of each of these lanes
};

JobSimulation build_simulation(const SimulatedJob& job);

// The messages of routes. `copy_seconds` is how long a device takes to copy one into or out of the
// slot it belongs to.
std::vector<Message> messages_of(
    const std::vector<parallel::Route>& routes,
    const std::function<double(const parallel::Route& route, bool sends)>& copy_seconds);

// When each step ends.
std::vector<double> step_ends_of(const JobSimulation& simulation, const SimulationResult& result);

// Mean share of time in which the devices compute nothing.
double bubble_of(const JobSimulation& simulation, const SimulationResult& result);

struct SimulatedSteps {
  std::vector<double> seconds;  // of each step, as a training run tells them
  double median = 0;            // without the first, as summaries have it
  double bubble = 0;
};

SimulatedSteps steps_of(const JobSimulation& simulation, const SimulationResult& result);

// The same kind of log as a real run gives: work, waits with their causes, communication beside.
runtime::TraceLog trace_log(const JobSimulation& simulation, const SimulationResult& result);

}  // namespace millrace::simulate
