// Leaves parts of a network untrained.
#pragma once

#include "graph/graph.h"
#include "passes/settings.h"

namespace millrace::passes {

// Makes parameters that are not to be trained buffers: they keep their values, and every later pass
// leaves out their gradients, states and what of the backward pass leads to them alone. Gives the
// others their factors of the learning rate. Patterns are those of base/pattern.h. Throws
// InputError for a pattern that fits nothing, or if nothing is left to train.
void choose_trained(graph::Graph& graph, const TrainedSettings& settings);

}  // namespace millrace::passes
