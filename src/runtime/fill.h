// First values of parameters and buffers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/graph.h"

namespace millrace::runtime {

// Fills `values` with the elements from `first` on of the part of shape `shape` that `slice` cuts
// out of the job's tensor, in plain order. A value
// depends on (seed, name, place in the whole tensor) alone, so however a tensor is divided its
// parts start as the whole does. Uses the calling thread's team.
void fill_slice(const graph::Initializer& initializer, std::string_view name, uint64_t seed,
                const graph::Shape& shape, const graph::Slice& slice, std::span<float> values,
                int64_t first = 0);

}  // namespace millrace::runtime
