// From a graph whose passes are done to a Program: kernels, offsets, break-down.
#pragma once

#include <vector>

#include "compile/program.h"

namespace millrace {

// The kernel layer's view of an operator of the graph.
KernelRequest request_for(const Graph& graph, const Operator& op, const KernelOptions& options);

// `shared` are state slots that keep their places (empty: the program lays out its own).
Program assemble(const Graph& graph, const KernelOptions& options,
                 const std::vector<Slot>& shared = {}, int64_t shared_bytes = 0);

}  // namespace millrace
