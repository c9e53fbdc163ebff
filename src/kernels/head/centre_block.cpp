#include "kernels/head/centre_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/head/storage.h"

namespace millrace {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kCentreRowsAhead = 4;

float centre_norm(const float* values, int64_t count) {
  return std::max(std::sqrt(sum_of_squares(values, count)), kLeastNorm);
}

}  // namespace

void prefetch_row(const std::byte* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
}

CentreBlock load_block(const CentreRows& centres, std::span<const int32_t> classes, bool in_order,
                       int64_t rows, DataType operand, const CentreBuffers& buffers) {
  const int64_t width = centres.dimension;
  const int64_t operand_bytes = width * size_of(operand);
  const auto count = static_cast<int64_t>(classes.size());
  const bool in_place = in_order && count == rows && centres.storage == operand;
  for (int64_t r = 0; r < count; ++r) {
    const std::byte* row = centres.row(classes[static_cast<size_t>(r)]);
    if (!in_order && r + kCentreRowsAhead < count) {
      prefetch_row(centres.row(classes[static_cast<size_t>(r + kCentreRowsAhead)]),
                   centres.row_bytes());
    }
    std::byte* target = buffers.operands + r * operand_bytes;
    if (centres.storage == operand && !in_place) {
      std::memcpy(target, row, static_cast<size_t>(operand_bytes));
    }
    const float* values = buffers.row;
    if (centres.storage == DataType::f32) {
      values = reinterpret_cast<const float*>(in_place ? row : target);
    } else if (operand == DataType::f32) {
      load_row(centres.storage, row, width, reinterpret_cast<float*>(target));
      values = reinterpret_cast<const float*>(target);
    } else {
      load_row(centres.storage, row, width, buffers.row);
      if (centres.storage != operand) {
        floats_to_bf16(buffers.row, width, reinterpret_cast<uint16_t*>(target));
      }
    }
    buffers.norms[r] = centre_norm(values, width);
  }
  if (in_place) return {centres.row(classes[0]), buffers.norms};
  std::memset(buffers.operands + count * operand_bytes, 0,
              static_cast<size_t>((rows - count) * operand_bytes));
  return {buffers.operands, buffers.norms};
}

}  // namespace millrace
