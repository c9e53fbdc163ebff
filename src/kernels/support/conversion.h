// Tensors between float32 and 16 bits, on the calling thread's team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/types.h"

namespace millrace {

// `type` is f16 or bf16, or f32: then they copy. The arrays must not overlap. Numbers round as
// base/half.h says.
void narrow(DataType type, const float* values, int64_t count, std::byte* stored);
void widen(DataType type, const std::byte* stored, int64_t count, float* values);

// The same on the calling thread alone.
void narrow_part(DataType type, const float* values, int64_t count, std::byte* stored);
void widen_part(DataType type, const std::byte* stored, int64_t count, float* values);

}  // namespace millrace
