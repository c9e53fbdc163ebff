// Leaves parts of a network untrained.
#pragma once

#include "graph/graph.h"
#include "passes/trained_settings.h"

namespace millrace {

// Makes parameters that are not to be trained buffers: they keep their values, and every later pass
// leaves out their gradients, states and what of the backward pass leads to them alone. Throws
// InputError for a pattern that fits nothing, or if nothing is left to train.
void choose_trained(Graph& graph, const TrainedSettings& settings);

}  // namespace millrace
