// A planned job as input of the simulator: several steps, from which the steady pace is read.
#pragma once

#include <vector>

#include "planner/cost/stage_cost.h"
#include "planner/simulate/fabric.h"

namespace millrace::planner {

// The input and where its steps end. Where replicas share each batch they all do the same at the
// same time, so each stage appears as its first device; replicas that take turns appear all.
struct StepSimulation {
  SimulationInput input;
  std::vector<std::vector<int>> step_ends;  // items that end each step

  // Seconds per step in the steady state of a result.
  double pace(const SimulationResult& result) const;

 private:
  friend class StepBuilder;
  int period_ = 1;  // the pace repeats after so many steps
};

struct StepInputs {
  const NetworkWork& network;
  const PlannedJob& job;
  const Cluster& cluster;
  const Fabric& fabric;
  const CostConstants& constants;
  const SoftwareConstants& software;
};

StepSimulation simulate_steps(const StepInputs& inputs);

}  // namespace millrace::planner
