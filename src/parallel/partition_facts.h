// What the division into stages asks of a forward graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace millrace {

// By OperatorId: whether the loss depends on the operator (the tensor "loss"; without one, any
// result).
std::vector<bool> operators_of_loss(const Graph& graph);

// By OperatorId: whether it joins an input with what the network computed from another (labels),
// or depends on one that does.
std::vector<bool> operators_of_labels(const Graph& graph);

}  // namespace millrace
