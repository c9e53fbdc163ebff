// From a graph whose passes are done to a Program: kernels, offsets, break-down.
#pragma once

#include <vector>

#include "compile/program.h"

namespace millrace {

// The kernel layer's view of an operator of the graph.
KernelRequest request_for(const Graph& graph, const Operator& op, const KernelOptions& options);

// How a program is going to be run.
enum class Phasing : uint8_t {
  whole,
  mini_batches,   // forward, then backward with the update
  micro_batches,  // forward, backward, and an update after several of both
};

struct StepShape {
  Phasing phasing = Phasing::whole;
  int slots = 1;     // micro-batches under way at once
  int versions = 1;  // of the parameters
  int64_t channel_bytes = 0;
  // Micro-batches only: backward ends with the gradients that other stages wait for, and the rest
  // of it is Program::backward_weights. The graph's order must be such (defer_weight_gradients).
  bool split_backward = false;
};

// With `sharing` the state keeps the places that it has in that program.
Program assemble(const Graph& graph, const KernelOptions& options, const StepShape& shape = {},
                 const Program* sharing = nullptr);

}  // namespace millrace
