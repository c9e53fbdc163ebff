// Trades time for memory: runs cheap forward operators again in the backward pass instead of
// keeping what they made.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "passes/settings.h"

namespace millrace {

// Runs on a graph with backward and update operators, before layouts. Candidates are the first
// outputs of forward operators whose definition is cheap, if the backward pass reads them, or if
// only another candidate's second run does; not those that would make it keep as much instead.
//
// A recomputed tensor gets a clone of its producer, "<name>/again" in Phase::backward, directly
// before the first operator that needs it there; all backward readers read the clone's output.
// Clones read the outputs of other clones where those exist.
//
// `automatic` starts from all candidates and gives back those that move the most memory first,
// each time the peak of transient memory does not rise or stays within `budget_bytes` (0: no
// budget). The peak counts what the in-place pass will save, and that tensors in `storable`, by id,
// are going to be kept in 16 bits (see storage.h). Returns the number of clones.
int recompute(Graph& graph, RecomputePolicy policy, int64_t budget_bytes = 0,
              const std::vector<bool>& storable = {});

}  // namespace millrace
