// From a graph whose passes are done to a Program: kernels, offsets, break-down.
#pragma once

#include <vector>

#include "compile/program.h"

namespace millrace::compile {

// The kernel layer's view of an operator of the graph.
kernels::KernelRequest request_for(const graph::Graph& graph, const graph::Operator& op,
                                   const kernels::KernelOptions& options);

// How a program is going to be run.
enum class Phasing : uint8_t {
  whole,
  mini_batches,   // forward, then backward with the update
  micro_batches,  // forward, backward, and an update after several of both
};

struct StepShape {
  Phasing phasing = Phasing::whole;
  int slots = 1;                                  // micro-batches under way at once
  int versions = 1;                               // of the parameters
  std::vector<parallel::RouteEnd> channels = {};  // to and from other stages
  // Micro-batches only: the gradients that other stages wait for are Work::backward_input, the rest
  // of backward is Work::backward_weights. The graph's order must be such (defer_weight_gradients).
  bool split_backward = false;
};

// With `sharing` the state keeps the places that it has in that program.
Program assemble(const graph::Graph& graph, const kernels::KernelOptions& options,
                 const StepShape& shape = {}, const Program* sharing = nullptr);

}  // namespace millrace::compile
