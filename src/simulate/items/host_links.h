// What the devices of a machine share, as links of the simulator.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "simulate/job_simulation.h"

namespace millrace::simulate {

// For each machine its cores together, its memory, and each core that devices share. Nothing is
// shared where the job's host has no cores. Borrows the job.
class HostLinks {
 public:
  // Adds its own to `links`.
  HostLinks(const SimulatedJob& job, std::vector<SimulationLink>& links);

  bool is_shared() const { return job_.host.cores > 0; }
  int machine_of(int device) const { return device / job_.fabric->cluster().devices_per_machine; }
  // The link that stands for the cores of a device's machine, and for its memory.
  int cores_of(int device) const { return begin_ + 2 * machine_of(device); }
  int memory_of(int device) const { return cores_of(device) + 1; }

  // Makes an item last as long as a device takes for it: `seconds` alone, `busy` with all devices
  // of its machine at work.
  void occupy(SimulationItem& item, int device, double seconds, double busy) const;

 private:
  const SimulatedJob& job_;
  int begin_ = 0;
  std::map<std::pair<int, int>, int> core_links_;  // by machine and core
};

}  // namespace millrace::simulate
