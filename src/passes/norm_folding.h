// Lets convolutions of an evaluation normalise what they make.
#pragma once

#include "graph/graph.h"

namespace millrace::passes {

// Joins norms of running statistics, with what fusion has joined with them, into the operator
// before them, where that has a type for it and nobody else reads what it makes. For graphs
// without a backward pass.
void fold_norms(graph::Graph& graph);

}  // namespace millrace::passes
