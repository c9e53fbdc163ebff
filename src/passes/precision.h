// Lets the layers that multiply most compute with numbers of 16 bits.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

struct PrecisionReport {
  int operators = 0;  // that work on 16 bits
  int casts = 0;      // inserted
};

// For a forward graph, fused or not, before the backward pass is added. Every operator is of one of
// three kinds:
//   - convolutions and linear layers read images and rows as `type` (f16 or bf16);
//   - operators without sums over many values (activations, pooling, addition, ...) and batch
//     normalisation of images follow the tensors they read;
//   - everything else stays float32, as do the layers that `keep` names (KeptLayers).
// Gradients take the type of their tensor. Parameters, their gradients, statistics and all results
// of the graph stay float32. A linear layer that only float32 operators read makes float32 itself;
// at every other border a `cast` is inserted, one for all readers.
PrecisionReport lower_precision(graph::Graph& graph, graph::DataType type,
                                const std::vector<std::string>& keep);

}  // namespace millrace::passes
