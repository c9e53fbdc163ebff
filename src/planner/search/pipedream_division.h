// PipeDream's division of a network, as a starting point that our own search has to beat.
#pragma once

#include <vector>

#include "planner/pipedream.h"
#include "planner/search/cuts.h"

namespace millrace::planner {

using Division = std::vector<PlannedStage>;

// The first `devices` devices of a cluster as PipeDream sees them: devices of a machine, and
// machines where they fill several, at the rates that the system reaches.
std::vector<Level> levels_of(const CostContext& context, int devices);

// Stages of the innermost level, with the layers that their nodes are in the order of
// `planned_order`, on the devices that the levels give them. Replicas that take turns keep a
// mini-batch within the workers of each level: the copies of a stage at the outermost level come
// first in the order of its devices.
Division place_division(const std::vector<PipelineStage>& stages, const std::vector<Level>& levels);

struct DivisionRules {
  int devices = 1;
  bool straight = false;  // as in PipedreamOptions
  bool fewer = false;
};

// By PipeDream's optimizer over the costs of this job's layers as a chain: over all levels of the
// first devices, then, where these are several, as if there were only one with the slowest link.
// Neighbouring layers of long chains on several levels are taken together. Empty where that would
// take too long (many devices), or PipeDream finds nothing.
std::vector<Division> pipedream_divisions(const CostContext& context, const PlannedJob& job,
                                          const DivisionRules& rules);

}  // namespace millrace::planner
