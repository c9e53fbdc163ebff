// Trades time for memory: runs forward operators again in the backward pass instead of keeping what
// they made.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "passes/settings.h"

namespace millrace::passes {

// How the finished step is run, as far as memory goes. By default whole: forward, backward and
// updates at one go.
struct StepMemory {
  bool phased = false;          // what outlives a phase is kept once per micro-batch under way
  bool updates_apart = false;   // updates are a phase of their own
  bool split_backward = false;  // gradients of weights are a phase of their own
  int slots = 1;                // micro-batches under way
};

struct RecomputeOptions {
  int64_t budget_bytes = 0;         // for all transient memory; 0: none
  std::vector<bool> storable = {};  // by tensor: kept in 16 bits (see storage.h); empty: nothing
  StepMemory memory = {};
};

struct RecomputeReport {
  int clones = 0;
  int costly_clones = 0;   // of operators that are not cheap
  int64_t peak_bytes = 0;  // of transient memory, as planned here
};

// Runs on a graph with backward and update operators, before layouts. Candidates are what forward
// operators made, if the backward pass reads it, or if only another candidate's second run does.
// `automatic` and `cheap` take cheap operators alone, and none that would make the backward pass
// keep as much instead; `all` takes any that may run again (OperatorDefinition::repeatable).
//
// A recomputed operator gets a clone, "<name>/again" in Phase::backward, directly before the first
// operator that needs it there; all backward readers read the clone's outputs. Clones read the
// outputs of other clones where those exist. No operator runs more than twice.
//
// `automatic` starts from all candidates and gives back those that move the most memory first,
// each time the peak of transient memory does not rise or stays within the budget. `all` looks for
// the tensors to keep that give the least peak (see recompute_search.h), and then gives back what
// costs the most for its bytes in the same way. The peak counts what the in-place pass will save,
// and tensors that are going to be kept in 16 bits as such.
RecomputeReport recompute(graph::Graph& graph, RecomputePolicy policy,
                          const RecomputeOptions& options = {});

}  // namespace millrace::passes
