// Blocks of centres made ready to be multiplied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "graph/types.h"
#include "kernels/head/storage.h"

namespace millrace::kernels {

// Rows of class centres (or of their state) in memory. Borrows everything.
struct CentreRows {
  std::byte* data = nullptr;
  graph::DataType storage = graph::DataType::f32;
  int64_t dimension = 0;

  int64_t row_bytes() const { return dimension * graph::size_of(storage); }
  std::byte* row(int64_t number) const { return data + number * row_bytes(); }
  // A row in float32: itself, or made in `scratch`.
  const float* values(int64_t number, float* scratch) const {
    if (storage == graph::DataType::f32) return reinterpret_cast<const float*>(row(number));
    load_row(storage, row(number), dimension, scratch);
    return scratch;
  }
};

// Norms below this count as this; such a centre has no direction to be projected away from.
inline constexpr float kLeastNorm = 1e-12f;

// What one thread makes of a block.
struct CentreBlock {
  const void* operand = nullptr;  // `rows` x dimension of the operand's type
  const float* norms = nullptr;   // at least kLeastNorm
};

// Where a block is made: a block of operands, a float for each row, three rows of floats.
struct CentreBuffers {
  std::byte* operands = nullptr;
  float* norms = nullptr;
  float* rows = nullptr;
};

class LateRows;

// Reads the centres of these classes. The block has `rows` rows; those beyond the classes are
// zero. With `in_order` the classes follow each other, and where their centres already lie as the
// operand must, it is they themselves. Rows that are `late` (null: none is) are made current in
// the block.
CentreBlock load_block(const CentreRows& centres, std::span<const int32_t> classes, bool in_order,
                       int64_t rows, graph::DataType operand, const LateRows* late,
                       const CentreBuffers& buffers);

// Asks for the memory of a row that is needed soon.
void prefetch_row(const std::byte* row, int64_t bytes);

}  // namespace millrace::kernels
