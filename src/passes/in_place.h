// Lets outputs take over the memory of inputs that nobody needs any more.
#pragma once

#include "graph/graph.h"

namespace millrace::passes {

// Sets Tensor::storage, always to the tensor that owns the memory, and returns how many were
// set. Runs last, on the final order and layouts.
// - The output of a view (OperatorDefinition::is_view) lies in its input, persistent or not.
// - Of the pairs in OperatorDefinition::in_place, those of equal type and layout whose input is
//   not persistent, and where nothing in its memory is a result, is read later, or is read by the
//   same operator through another input.
int assign_in_place(graph::Graph& graph);

}  // namespace millrace::passes
