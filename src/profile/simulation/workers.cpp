#include "profile/simulation/workers.h"

namespace millrace::profile {

SimulatedWorkers::SimulatedWorkers(const SimulatedJob& job) {
  for (size_t stage = 0; stage < job.devices.size(); ++stage) {
    first_.push_back(count());
    for (size_t member = 0; member < job.devices[stage].size(); ++member) {
      workers_.push_back({static_cast<int>(stage), static_cast<int>(member),
                          job.devices[stage][member], job.programs[stage][member]});
    }
  }
}

}  // namespace millrace::profile
