#pragma once

#include <cstdint>

namespace millrace {

// How convolutions are computed. `automatic` measures each once on this machine and remembers
// the fastest; `direct` and `winograd` (where it applies) do not measure.
enum class ConvolutionAlgorithm : uint8_t { automatic, direct, winograd };

}  // namespace millrace
