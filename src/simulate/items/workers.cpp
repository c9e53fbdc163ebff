#include "simulate/items/workers.h"

namespace millrace::simulate {

SimulatedWorkers::SimulatedWorkers(const SimulatedJob& job) {
  for (size_t stage = 0; stage < job.devices.size(); ++stage) {
    first_.push_back(count());
    const std::vector<const CostedProgram*>& programs = job.costs.programs[stage];
    for (size_t member = 0; member < programs.size(); ++member) {
      workers_.push_back({static_cast<int>(stage), static_cast<int>(member),
                          job.devices[stage][member], programs[member]});
    }
  }
}

}  // namespace millrace::simulate
