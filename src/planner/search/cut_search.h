// Cuts a job where the simulator finds it fastest.
#pragma once

#include <cstddef>

#include "planner/cost/cost_context.h"
#include "planner/cost/planned_job.h"

namespace millrace::planner {

struct CutRules {
  double memory_limit = 0;  // bytes of a device
  double most_items = 1e6;  // that are simulated for it, about
};

// The job with its layers divided among its stages. Tries the likely cuts and, from each of them
// and as far as the rules let it, moves one cut after the other, or it and all behind it, by one
// layer, two, four ...; keeps what has the most samples per second of all that fits or, if nothing
// does, what needs the least memory. Throws InputError if there are more stages than layers.
PlannedJob cut_by_simulation(const CostContext& context, PlannedJob job, const CutRules& rules);

}  // namespace millrace::planner
