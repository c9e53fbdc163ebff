// Elements of 16 bits in loops over floats.
//
// A loop that is written for an element type reads with as_float and writes with put, so that it is
// compiled for float and for Bf16. A loop over floats alone serves both through in_floats.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/half.h"
#include "base/parallel.h"
#include "kernels/kernel.h"
#include "kernels/support/conversion.h"
#include "kernels/support/function_kernel.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {

struct Bf16 {
  uint16_t bits;
};

MILLRACE_INLINE float as_float(float value) { return value; }
MILLRACE_INLINE float as_float(Bf16 value) { return from_bf16(value.bits); }
MILLRACE_INLINE void put(float value, float& to) { to = value; }
MILLRACE_INLINE void put(float value, Bf16& to) { to.bits = to_bf16(value); }

// Whether all tensors but those of rank one have the type of input `leader`.
inline bool has_one_type(const KernelRequest& request, size_t leader, std::string* refusal) {
  const graph::DataType type = request.inputs.at(leader).type.dtype;
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

// Calls body(inputs, output, position, count) with floats for the elements from `begin` to `end`.
// Tensors of 16 bits go through buffers that stay in the first cache; with one, everything comes in
// parts of kFloatPart but for the last. The output may be one of the inputs.
template <size_t kInputs, typename Body>
void in_floats(const std::array<StoredNumbers, kInputs>& inputs, const TargetNumbers& output,
               int64_t begin, int64_t end, Body&& body) {
  std::array<const float*, kInputs> from;
  bool all_floats = output.type == graph::DataType::f32;
  for (const StoredNumbers& input : inputs) all_floats &= input.type == graph::DataType::f32;
  if (all_floats) {
    for (size_t i = 0; i < kInputs; ++i) from[i] = inputs[i].floats() + begin;
    body(from, output.floats() + begin, begin, end - begin);
    return;
  }
  alignas(64) float buffers[kInputs][kFloatPart];
  alignas(64) float result[kFloatPart];
  for (int64_t at = begin; at < end; at += kFloatPart) {
    const int64_t count = std::min(kFloatPart, end - at);
    for (size_t i = 0; i < kInputs; ++i) {
      const StoredNumbers part = inputs[i].from(at);
      from[i] = part.type == graph::DataType::f32 ? part.floats() : buffers[i];
      if (part.type != graph::DataType::f32) widen_part(part.type, part.data, count, buffers[i]);
    }
    if (output.type == graph::DataType::f32) {
      body(from, output.floats() + at, at, count);
    } else {
      body(from, result, at, count);
      narrow_part(output.type, result, count, output.data + at * graph::size_of(output.type));
    }
  }
}

// A kernel that calls body(inputs, output, position, count) for all elements of the first kInputs
// inputs and the output, of f32, f16 or bf16 and in one layout.
template <size_t kInputs, typename Body>
std::unique_ptr<Kernel> make_elementwise(const KernelRequest& request, Body body) {
  std::array<graph::DataType, kInputs> types;
  for (size_t i = 0; i < kInputs; ++i) types[i] = request.inputs.at(i).type.dtype;
  const graph::DataType target = request.outputs.at(0).type.dtype;
  const int64_t elements = request.inputs[0].physical_elements();
  return make_function_kernel([types, target, elements, body](const KernelArguments& a) {
    std::array<StoredNumbers, kInputs> inputs;
    for (size_t i = 0; i < kInputs; ++i) inputs[i] = {types[i], a.inputs[i]};
    parallel_ranges(elements, kElementwiseGrain, [&](int, int64_t begin, int64_t end) {
      in_floats<kInputs>(inputs, {target, a.outputs[0]}, begin, end, body);
    });
  });
}

}  // namespace millrace::kernels
