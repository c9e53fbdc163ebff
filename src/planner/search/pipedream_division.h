// PipeDream's division of a network, as a starting point that our own search has to beat.
#pragma once

#include <vector>

#include "planner/search/cuts.h"

namespace millrace {

// Stages with their layers and neighbouring devices from 0 on, by PipeDream's optimizer over the
// costs of this job's layers, on one level with the slowest link of the first `devices` devices.
// Empty where that would take too long (many devices).
std::vector<PlannedStage> pipedream_division(const CostContext& context, const PlannedJob& job,
                                             int devices);

}  // namespace millrace
