// Writes the items of a simulated job, one after the other.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "simulate/fabric.h"
#include "simulate/items/host_links.h"
#include "simulate/items/workers.h"
#include "simulate/job_simulation.h"

namespace millrace::simulate {

// Owns the simulation until it is taken. Items of a device's own thread follow each other; what
// the next one has to wait for besides is collected with `wait_for`. Borrows the job.
class ItemWriter {
 public:
  explicit ItemWriter(const SimulatedJob& job);

  const SimulatedJob& job() const { return job_; }
  const Fabric& fabric() const { return *job_.fabric; }
  const HostLinks& host() const { return host_; }
  const SimulatedWorkers& workers() const { return workers_; }

  // Returns the item's number. `worker`: where it is shown in a trace; -1: nowhere.
  int add(std::string name, std::string category, int lane, int worker, int64_t micro_batch = -1);

  // An item of a worker's own thread, behind everything that its device has to wait for.
  int add_own(std::string name, std::string category, int worker, double seconds, double busy,
              int64_t micro_batch);

  int count() const { return static_cast<int>(made_.input.items.size()); }
  SimulationItem& item(int id) { return made_.input.items[static_cast<size_t>(id)]; }
  // `id` starts when `before` has ended; -1 is none.
  void follow(int id, int before) {
    if (id >= 0 && before >= 0) item(id).after.push_back(before);
  }
  void hide(int id) { made_.trace_device[static_cast<size_t>(id)] = -1; }

  int device_of(int worker) const { return workers_[worker].device; }
  int compute_lane(int worker) const { return own_.at(device_of(worker)).lane; }
  int background_lane(int worker) const { return compute_lane(worker) + 1; }
  // Of messages from one worker's device to another's, in turn.
  int message_lane(int from, int to);
  // Whether devices run what is ready.
  bool is_free() const { return is_free_; }

  void wait_for(int worker, int id) { own_.at(device_of(worker)).waits.push_back(id); }
  bool waits(int worker) const { return !own_.at(device_of(worker)).waits.empty(); }
  // The last item of the worker's device; -1: none yet.
  int last(int worker) const { return own_.at(device_of(worker)).last; }

  // A counter of the simulator that starts with `value`.
  int add_counter(int value);

  // The item is one of those that end a step.
  void end_step(int64_t step, int id);
  // All devices end a step before the next one begins.
  void join_devices(int64_t step);

  JobSimulation take() { return std::move(made_); }

 private:
  // What there is of a device that works.
  struct OwnThread {
    int lane = -1;           // computing; one more: background
    int last = -1;           // item
    std::vector<int> waits;  // what the next item has to follow
  };

  int add_lane(int device, const char* name, bool ordered);

  const SimulatedJob& job_;
  const SimulatedWorkers workers_;
  const bool is_free_;
  JobSimulation made_;
  HostLinks host_;
  std::map<int, OwnThread> own_;                      // by device
  std::map<std::pair<int, int>, int> message_lanes_;  // by both devices
};

}  // namespace millrace::simulate
