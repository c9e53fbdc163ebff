// Joins neighbouring forward operators so that fewer tensors are written, read and kept.
#pragma once

#include "graph/graph.h"

namespace millrace::passes {

// Runs on a forward graph, before autodiff. An intermediate tensor disappears only if it has a
// single reader and is not a result:
// - an addition goes into the batch normalisation before it, as its residual (where both sides
//   are batch normalisations, into the one on the longer chain of operators, else the first);
// - a relu goes into the convolution, linear, batch_norm or add before it;
// - a relu whose output only a max_pool reads goes into that max_pool: the values are the same,
//   and the larger tensor before the pool need not be kept for the relu's gradient.
// A joined operator keeps its name, stands where the later one stood, and makes the tensor that
// the later one made, so readers and results stay valid.
void fuse(graph::Graph& graph);

}  // namespace millrace::passes
