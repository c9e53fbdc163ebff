// Rows of centres and of optimizer state as they are stored: f32, bf16 or f16.
//
// Sums and updates are in float32. Writing to 16 bits rounds up or down with the probability
// that makes the expectation right, so that steps smaller than the spacing of the numbers are
// not lost; the random bits are a function of (key, tensor, row, column) alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/types.h"

namespace millrace::kernels {

// What the rounding of one row depends on.
struct RoundingKey {
  uint64_t step = 0;    // a hash of seed and step
  uint64_t row = 0;     // counted over all parts of the classes
  uint32_t tensor = 0;  // centres 0, states 1 and 2
};

RoundingKey rounding_key(uint64_t seed, int64_t step, int64_t row, uint32_t tensor);

void load_row(graph::DataType type, const std::byte* row, int64_t count, float* values);
void store_row(graph::DataType type, const float* values, int64_t count, const RoundingKey& key,
               std::byte* row);

float sum_of_squares(const float* values, int64_t count);

}  // namespace millrace::kernels
