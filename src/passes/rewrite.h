// Small tools shared by the passes.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

// Whether each tensor, by id, is a result of the graph.
std::vector<bool> result_flags(const graph::Graph& graph);

// The inputs that this operator writes, after its attributes: batch normalisation in inference
// writes none.
std::vector<graph::TensorId> mutated_tensors(const graph::Operator& op);

// The memory that a tensor takes in its layout.
int64_t bytes_of(const graph::Tensor& tensor);

// The order without the operators for which `removed` (by id) is true.
void erase_operators(graph::Graph& graph, const std::vector<bool>& removed);

// Hands out names that no tensor of the graph had when this was made: "x", "x.2", "x.3".
class UniqueNames {
 public:
  explicit UniqueNames(const graph::Graph& graph);
  std::string take(const std::string& name);

 private:
  std::set<std::string> used_;
};

}  // namespace millrace::passes
