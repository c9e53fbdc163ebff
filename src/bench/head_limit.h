// What the products of a head's step take by themselves.
#pragma once

#include "bench/head_server.h"

namespace millrace::bench {

// Seconds of the three products of every class in use, alone: in the blocks and by the primitives
// of the head's kernels, over and over on the same block of each thread, so that no memory is
// waited for. No step of float32 takes less. Called on a device's thread; the median of a few
// rounds.
double head_product_seconds(const HeadJob& job);

}  // namespace millrace::bench
