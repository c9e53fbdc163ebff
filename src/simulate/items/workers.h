// The devices of a simulated job, each with its share of it.
#pragma once

#include <vector>

#include "simulate/job_simulation.h"

namespace millrace::simulate {

// A stage on one of its devices; several may share a device.
struct SimulatedWorker {
  int stage = 0;
  int member = 0;  // among the devices of its stage
  int device = 0;  // its number in the cluster
  const CostedProgram* program = nullptr;
};

// All workers of a job, stage by stage; of a stage whose members all do the same, the first.
// Immutable; borrows the job.
class SimulatedWorkers {
 public:
  explicit SimulatedWorkers(const SimulatedJob& job);

  int count() const { return static_cast<int>(workers_.size()); }
  const SimulatedWorker& operator[](int number) const {
    return workers_[static_cast<size_t>(number)];
  }
  int number_of(int stage, int member) const { return first_[static_cast<size_t>(stage)] + member; }

 private:
  std::vector<SimulatedWorker> workers_;
  std::vector<int> first_;  // of each stage
};

}  // namespace millrace::simulate
