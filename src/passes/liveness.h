// From when to when each tensor needs memory.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

// The memory of `tensor` is in use from position `first` of the order to `last`, both included.
struct Lifetime {
  graph::TensorId tensor;
  int first;
  int last;
  int64_t bytes;
};

// The tensor in whose memory each tensor lies, by id: itself unless it is a view or the in-place
// pass has given it another's storage.
std::vector<graph::TensorId> storage_roots(const graph::Graph& graph);

// The lifetimes of all memory that is used within a step, by first position and then by id.
// Tensors that share storage are one lifetime, under the tensor that owns it. Persistent tensors
// and their views are left out; results live to the end unless they are `fetched` on the way.
std::vector<Lifetime> lifetimes(const graph::Graph& graph, bool fetched = false);

// The most bytes in use at one position.
int64_t peak_bytes(const std::vector<Lifetime>& lifetimes);

}  // namespace millrace::passes
