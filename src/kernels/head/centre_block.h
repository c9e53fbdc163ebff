// Blocks of centres made ready to be multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/types.h"
#include "kernels/head/sampling.h"

namespace millrace {

// Rows of class centres (or of their state) in memory. Borrows everything.
struct CentreRows {
  std::byte* data = nullptr;
  DataType storage = DataType::f32;
  int64_t dimension = 0;

  int64_t row_bytes() const { return dimension * size_of(storage); }
  std::byte* row(int64_t number) const { return data + number * row_bytes(); }
};

// Norms below this count as this; such a centre has no direction to be projected away from.
inline constexpr float kLeastNorm = 1e-12f;

// What one thread makes of a block.
struct CentreBlock {
  const void* operand = nullptr;  // `rows` x dimension of the operand's type
  const float* norms = nullptr;   // at least kLeastNorm
};

// Reads the centres at positions first .. first + count of the sample. The block has `rows` rows;
// those beyond `count` are zero. Where the centres already lie as the operand must, it is they
// themselves. `buffer` holds a block of operands, `norms` one float a row, `scratch` a row of
// floats.
CentreBlock load_block(const CentreRows& centres, const Sample& sample, int64_t first,
                       int64_t count, int64_t rows, DataType operand, std::byte* buffer,
                       float* norms, float* scratch);

// Asks for the memory of a row that is needed soon.
void prefetch_row(const std::byte* row, int64_t bytes);

}  // namespace millrace
