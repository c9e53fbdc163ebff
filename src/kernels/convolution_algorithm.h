#pragma once

#include <cstdint>

namespace millrace::kernels {

// How convolutions are computed. `automatic` takes what was measured as the fastest, or else what
// ought to be by its costs; `direct` and `winograd` (where it applies) always take the same.
enum class ConvolutionAlgorithm : uint8_t { automatic, direct, winograd };

}  // namespace millrace::kernels
