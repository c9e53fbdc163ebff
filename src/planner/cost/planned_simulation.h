// A planned job as the simulator takes it: several steps, from which the steady pace is read.
#pragma once

#include <vector>

#include "planner/cost/cost_context.h"
#include "planner/cost/stage_cost.h"
#include "simulate/job_simulation.h"

namespace millrace::planner {

// Where replicas share each batch they all do the same at the same time, so each stage appears as
// its first device; replicas that take turns appear all. `costs` are of the stages.
simulate::JobSimulation simulation_of(const CostContext& context, const PlannedJob& job,
                                      const simulate::Fabric& fabric,
                                      const std::vector<StageCost>& costs);

// Seconds per step in the steady state of a result.
double pace_of(const PlannedJob& job, const simulate::JobSimulation& simulation,
               const simulate::SimulationResult& result);

}  // namespace millrace::planner
