#include "kernels/support/conversion.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/half.h"
#include "base/parallel.h"

namespace millrace::kernels {
namespace {

// Parts begin at whole cache lines, if the arrays do.
constexpr int64_t kConvertedChunk = 1024;
constexpr int64_t kChunkGrain = 16;

template <typename Body>
void in_parts(int64_t count, Body&& body) {
  parallel_ranges((count + kConvertedChunk - 1) / kConvertedChunk, kChunkGrain,
                  [&](int, int64_t begin, int64_t end) {
                    body(begin * kConvertedChunk,
                         std::min(count, end * kConvertedChunk) - begin * kConvertedChunk);
                  });
}

}  // namespace

void narrow_part(graph::DataType type, const float* values, int64_t count, std::byte* stored) {
  switch (type) {
    case graph::DataType::f32:
      std::memcpy(stored, values, static_cast<size_t>(count) * sizeof(float));
      return;
    case graph::DataType::f16:
      return floats_to_f16(values, count, reinterpret_cast<uint16_t*>(stored));
    case graph::DataType::bf16:
      return floats_to_bf16(values, count, reinterpret_cast<uint16_t*>(stored));
    default:
      throw std::logic_error("numbers are stored as f32, f16 or bf16");
  }
}

void widen_part(graph::DataType type, const std::byte* stored, int64_t count, float* values) {
  switch (type) {
    case graph::DataType::f32:
      std::memcpy(values, stored, static_cast<size_t>(count) * sizeof(float));
      return;
    case graph::DataType::f16:
      return f16_to_floats(reinterpret_cast<const uint16_t*>(stored), count, values);
    case graph::DataType::bf16:
      return bf16_to_floats(reinterpret_cast<const uint16_t*>(stored), count, values);
    default:
      throw std::logic_error("numbers are stored as f32, f16 or bf16");
  }
}

float StoredNumbers::operator[](int64_t index) const {
  float value = 0;
  widen_part(type, from(index).data, 1, &value);
  return value;
}

void narrow(graph::DataType type, const float* values, int64_t count, std::byte* stored) {
  in_parts(count, [&](int64_t first, int64_t part) {
    narrow_part(type, values + first, part, stored + first * graph::size_of(type));
  });
}

void widen(graph::DataType type, const std::byte* stored, int64_t count, float* values) {
  in_parts(count, [&](int64_t first, int64_t part) {
    widen_part(type, stored + first * graph::size_of(type), part, values + first);
  });
}

}  // namespace millrace::kernels
