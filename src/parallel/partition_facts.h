// What the division into stages asks of a forward graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace millrace::parallel {

// The place of an operator or tensor in a vector by id.
inline size_t at(int32_t id) { return static_cast<size_t>(id); }

// By OperatorId: whether the loss depends on the operator (the tensor "loss"; without one, any
// result).
std::vector<bool> operators_of_loss(const graph::Graph& graph);

// By OperatorId: whether it joins an input with what the network computed from another (labels),
// or depends on one that does.
std::vector<bool> operators_of_labels(const graph::Graph& graph);

}  // namespace millrace::parallel
