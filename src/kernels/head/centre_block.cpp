#include "kernels/head/centre_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/head/row_clock.h"
#include "kernels/head/storage.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kLine = 64;
constexpr int64_t kCentreRowsAhead = 4;
constexpr int64_t kClocksAhead = 16;

float centre_norm(const float* values, int64_t count) {
  return std::max(std::sqrt(sum_of_squares(values, count)), kLeastNorm);
}

}  // namespace

void prefetch_row(const std::byte* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, 0, 2);
}

CentreBlock load_block(const CentreRows& centres, std::span<const int32_t> classes, bool in_order,
                       int64_t rows, graph::DataType operand, const LateRows* late,
                       const CentreBuffers& buffers) {
  const int64_t width = centres.dimension;
  const int64_t operand_bytes = width * graph::size_of(operand);
  const auto count = static_cast<int64_t>(classes.size());
  const bool in_place = in_order && late == nullptr && count == rows && centres.storage == operand;
  const auto prefetch_clock = [&](int64_t r) {
    if (late != nullptr && r < count) late->clock().prefetch(classes[static_cast<size_t>(r)]);
  };
  for (int64_t r = 0; r < kClocksAhead; ++r) prefetch_clock(r);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t number = classes[static_cast<size_t>(r)];
    prefetch_clock(r + kClocksAhead);
    const std::byte* row = centres.row(number);
    if (!in_order && r + kCentreRowsAhead < count) {
      const int64_t ahead = classes[static_cast<size_t>(r + kCentreRowsAhead)];
      prefetch_row(centres.row(ahead), centres.row_bytes());
      if (late != nullptr) late->prefetch(ahead);
    }
    if (in_place) {
      const bool is_float = centres.storage == graph::DataType::f32;
      if (!is_float) load_row(centres.storage, row, width, buffers.rows);
      const auto* values = is_float ? reinterpret_cast<const float*>(row) : buffers.rows;
      buffers.norms[r] = centre_norm(values, width);
      continue;
    }
    std::byte* target = buffers.operands + r * operand_bytes;
    const bool is_float = operand == graph::DataType::f32;
    float* values = is_float ? reinterpret_cast<float*>(target) : buffers.rows;
    load_row(centres.storage, row, width, values);
    if (late != nullptr) late->catch_up(number, values, buffers.rows + width);
    buffers.norms[r] = centre_norm(values, width);
    if (!is_float) floats_to_bf16(values, width, reinterpret_cast<uint16_t*>(target));
  }
  if (in_place) return {centres.row(classes[0]), buffers.norms};
  std::memset(buffers.operands + count * operand_bytes, 0,
              static_cast<size_t>((rows - count) * operand_bytes));
  return {buffers.operands, buffers.norms};
}

}  // namespace millrace::kernels
