// Tensors between float32 and 16 bits, on the calling thread's team.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph/types.h"

namespace millrace::kernels {

// `type` is f16 or bf16, or f32: then they copy. The arrays must not overlap. Numbers round as
// base/half.h says.
void narrow(graph::DataType type, const float* values, int64_t count, std::byte* stored);
void widen(graph::DataType type, const std::byte* stored, int64_t count, float* values);

// The same on the calling thread alone.
void narrow_part(graph::DataType type, const float* values, int64_t count, std::byte* stored);
void widen_part(graph::DataType type, const std::byte* stored, int64_t count, float* values);

// Numbers as they lie in memory.
struct StoredNumbers {
  graph::DataType type = graph::DataType::f32;
  const std::byte* data = nullptr;  // null: none

  // Of f32 numbers.
  const float* floats() const { return reinterpret_cast<const float*>(data); }
  StoredNumbers from(int64_t index) const {
    return {type, data == nullptr ? nullptr : data + index * graph::size_of(type)};
  }
  float operator[](int64_t index) const;
};

// Numbers that are to be written.
struct TargetNumbers {
  graph::DataType type = graph::DataType::f32;
  std::byte* data = nullptr;

  // Of f32 numbers.
  float* floats() const { return reinterpret_cast<float*>(data); }
};

// Calls body(first, count, values of a, values of b) for parts of `count` numbers, in order, each
// a multiple of `unit` numbers and small enough for the nearest cache. What is f32 is handed on as
// it lies; what is not there as null.
template <typename Body>
void in_float_parts(const StoredNumbers& a, const StoredNumbers& b, int64_t count, int64_t unit,
                    Body&& body) {
  constexpr int64_t kPart = 2048;
  if (a.type == graph::DataType::f32 && b.type == graph::DataType::f32) {
    body(int64_t{0}, count, a.floats(), b.floats());
    return;
  }
  alignas(64) float buffers[2][kPart];
  const int64_t most = kPart / unit * unit;
  for (int64_t first = 0; first < count; first += most) {
    const int64_t part = count - first < most ? count - first : most;
    const auto floats_of = [&](const StoredNumbers& numbers, float* buffer) {
      const StoredNumbers here = numbers.from(first);
      if (here.data == nullptr || here.type == graph::DataType::f32) return here.floats();
      widen_part(here.type, here.data, part, buffer);
      return static_cast<const float*>(buffer);
    };
    const float* values = floats_of(a, buffers[0]);
    body(first, part, values, floats_of(b, buffers[1]));
  }
}

}  // namespace millrace::kernels
