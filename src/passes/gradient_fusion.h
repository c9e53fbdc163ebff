// Joins backward operators that autodiff leaves next to each other.
#pragma once

#include "graph/graph.h"

namespace millrace::passes {

// relu_backward(add(da, db), y) becomes add_relu_backward(da, db, y) where nobody else reads the
// sum: the gradient of a residual block's output in one pass over memory. Runs after autodiff.
void fuse_gradients(graph::Graph& graph);

}  // namespace millrace::passes
