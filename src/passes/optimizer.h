// Adds the weight updates to a graph with gradients.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "passes/autodiff.h"
#include "passes/settings.h"

namespace millrace {

// Adds one operator "<parameter>/update" per gradient (Phase::update) and its state, tensors
// "<parameter>.momentum" or ".first_moment" and ".second_moment" that start at zero. LARS treats
// tensors of rank one or less as plain SGD with momentum.
//
// A margin head, which updates its own centres, gets its settings and state here; clip_norm does
// not see the centres.
//
// Each update stands directly behind the last operator that makes its gradient or reads its
// parameter, so that gradients live briefly; with clip_norm all updates stand at the end, behind
// the operators that measure the norm.
void add_updates(Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings);

}  // namespace millrace
