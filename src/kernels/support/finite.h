// Whether values are finite, at the speed of memory.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// On the calling thread's team.
bool all_finite(const float* values, int64_t count);

}  // namespace millrace::kernels
