// Decides how every tensor lies in memory, and inserts the reorders that this costs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

// Knows which layouts the kernels like. Implemented where the kernels are.
class LayoutOracle {
 public:
  virtual ~LayoutOracle();

  // One layout per input and per output of the operator.
  struct Wish {
    std::vector<graph::Layout> inputs;
    std::vector<graph::Layout> outputs;
  };

  // The inputs of `op` already have the layouts in which they were made; persistent tensors
  // that have none yet are plain.
  virtual Wish wish(const graph::Graph& graph, const graph::Operator& op) const = 0;
};

struct LayoutReport {
  int reorders = 0;
  int64_t reorder_bytes = 0;           // memory that the reordered copies take
  std::vector<std::string> reordered;  // the tensors' names, one per reorder
};

// Walks the order once. Outputs get the layouts their operator wishes. Parameters, buffers and
// inputs of the graph get what their first reader wishes, unless `fixed` names them; optimizer
// state lies as its parameter does. Every other mismatch costs a `reorder` directly before the
// reader, in its phase, which later readers with the same wish share until the tensor is
// written. Views read plain tensors. Throws std::logic_error if the oracle wishes another
// layout for a tensor that the operator writes.
LayoutReport choose_layouts(graph::Graph& graph, const LayoutOracle& oracle,
                            const std::map<std::string, graph::Layout>& fixed = {});

}  // namespace millrace::passes
