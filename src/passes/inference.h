// Turns a forward graph into one that evaluates.
#pragma once

#include "graph/graph.h"

namespace millrace::passes {

// Removes dropout (its readers and results take its input) and lets every batch normalisation
// use the running statistics, writing and exchanging none. For graphs without a backward pass.
void make_inference(graph::Graph& graph);

}  // namespace millrace::passes
