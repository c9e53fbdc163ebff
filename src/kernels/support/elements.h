// Elements of 16 bits in loops over floats.
//
// A loop that is written for an element type reads with as_float and writes with put, so that it is
// compiled for float and for Bf16. A loop over floats alone serves both through in_floats.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/half.h"
#include "kernels/kernel.h"
#include "kernels/support/conversion.h"
#include "kernels/support/vectorize.h"

namespace millrace {

struct Bf16 {
  uint16_t bits;
};

MILLRACE_INLINE float as_float(float value) { return value; }
MILLRACE_INLINE float as_float(Bf16 value) { return from_bf16(value.bits); }
MILLRACE_INLINE void put(float value, float& to) { to = value; }
MILLRACE_INLINE void put(float value, Bf16& to) { to.bits = to_bf16(value); }

// Whether all tensors but those of rank one have the type of input `leader`.
inline bool has_one_type(const KernelRequest& request, size_t leader, std::string* refusal) {
  const DataType type = request.inputs.at(leader).type.dtype;
  const auto fits = [type](const TensorSpec& tensor) {
    return tensor.type.shape.size() < 2 || tensor.type.dtype == type;
  };
  if (std::all_of(request.inputs.begin(), request.inputs.end(), fits) &&
      std::all_of(request.outputs.begin(), request.outputs.end(), fits)) {
    return true;
  }
  *refusal = "needs tensors of one type";
  return false;
}

// Elements of 16 bits that are floats at a time.
inline constexpr int64_t kFloatPart = 1024;

// Calls body(inputs, output, position, count) with floats for the elements from `begin` to `end` of
// tensors of `type`. Those of 16 bits go through buffers that stay in the first cache, in parts of
// kFloatPart but for the last. The output may be one of the inputs.
template <size_t kInputs, typename Body>
void in_floats(DataType type, const std::array<const std::byte*, kInputs>& inputs,
               std::byte* output, int64_t begin, int64_t end, Body&& body) {
  std::array<const float*, kInputs> from;
  if (type == DataType::f32) {
    for (size_t i = 0; i < kInputs; ++i)
      from[i] = reinterpret_cast<const float*>(inputs[i]) + begin;
    body(from, reinterpret_cast<float*>(output) + begin, begin, end - begin);
    return;
  }
  alignas(64) float buffers[kInputs][kFloatPart];
  alignas(64) float result[kFloatPart];
  const int64_t size = size_of(type);
  for (int64_t at = begin; at < end; at += kFloatPart) {
    const int64_t count = std::min(kFloatPart, end - at);
    for (size_t i = 0; i < kInputs; ++i) {
      widen_part(type, inputs[i] + at * size, count, buffers[i]);
      from[i] = buffers[i];
    }
    body(from, result, at, count);
    narrow_part(type, result, count, output + at * size);
  }
}

}  // namespace millrace
