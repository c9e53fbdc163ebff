// Writes the items of a simulated job, one after the other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/simulate/fabric.h"
#include "profile/program_simulation.h"
#include "profile/simulation/host_links.h"
#include "profile/simulation/workers.h"

namespace millrace::profile {

// Owns the simulation until it is taken. Items of a device's own thread follow each other; what
// the next one has to wait for besides is collected with `wait_for`. Borrows the job.
class ItemWriter {
 public:
  explicit ItemWriter(const SimulatedJob& job);

  const SimulatedJob& job() const { return job_; }
  const planner::Fabric& fabric() const { return fabric_; }
  const HostLinks& host() const { return host_; }
  const SimulatedWorkers& workers() const { return workers_; }

  // Returns the item's number. `worker`: where it is shown in a trace; -1: nowhere.
  int add(std::string name, std::string category, int lane, int worker, int64_t micro_batch = -1);

  // An item of a worker's own thread, behind everything that its device has to wait for.
  int add_own(std::string name, std::string category, int worker, double seconds, double busy,
              int64_t micro_batch);

  int count() const { return static_cast<int>(made_.input.items.size()); }
  planner::SimulationItem& item(int id) { return made_.input.items[static_cast<size_t>(id)]; }
  void follow(int id, int before) { item(id).after.push_back(before); }
  void hide(int id) { made_.trace_device[static_cast<size_t>(id)] = -1; }

  int device_of(int worker) const { return workers_[worker].device; }
  int compute_lane(int worker) const { return lanes_.at(device_of(worker)); }
  int background_lane(int worker) const { return compute_lane(worker) + 1; }

  void wait_for(int worker, int id) { waits_[device_of(worker)].push_back(id); }
  bool waits(int worker) { return !waits_[device_of(worker)].empty(); }
  // The last item of the worker's device.
  int last(int worker) { return last_[device_of(worker)]; }

  // A counter of the simulator that starts with `value`.
  int add_counter(int value);

  // The item is one of those that end a step.
  void end_step(int64_t step, int id);
  // All devices end a step before the next one begins.
  void join_devices(int64_t step);

  ProgramSimulation take() { return std::move(made_); }

 private:
  void add_lanes(int device);

  const SimulatedJob& job_;
  const planner::Fabric fabric_;
  const SimulatedWorkers workers_;
  ProgramSimulation made_;
  HostLinks host_;
  std::map<int, int> lanes_;               // of each device: computing; one more: background
  std::map<int, std::vector<int>> waits_;  // what the next item of a device has to follow
  std::map<int, int> last_;                // item of each device
};

}  // namespace millrace::profile
