// Numbers of 16 bits: IEEE half precision (f16) and bfloat16 (bf16).
//
// Narrowing rounds to the nearest, halfway cases to the even neighbour; what is too large becomes
// infinite, denormals are rounded as any other number, and a NaN stays a NaN, quiet, with its sign
// and the upper bits of its payload. Widening is exact. The functions over arrays give the same
// bits as those for one number, on every processor. They run on the calling thread, use the widest
// instructions that the processor has, and write big arrays past the caches. Arrays may lie at any
// address and must not overlap.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace millrace {

namespace detail {

// By masks: a choice that the compiler turns into a jump is not vectorised.
inline __attribute__((always_inline)) uint32_t pick(bool first, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(first);
  return (a & mask) | (b & ~mask);
}

}  // namespace detail

inline __attribute__((always_inline)) uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t normal = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  // Added to a half, a number below 2^-14 is rounded to multiples of 2^-24.
  const bool is_small = magnitude < 0x38800000u;
  const auto small = std::bit_cast<float>(detail::pick(is_small, magnitude, 0u));
  const uint32_t subnormal = std::bit_cast<uint32_t>(small + 0.5f) - 0x3F000000u;
  uint32_t result = detail::pick(is_small, subnormal, normal);
  result = detail::pick(magnitude >= 0x47800000u, 0x7C00u, result);
  result = detail::pick(magnitude > 0x7F800000u, 0x7E00u | (magnitude >> 13 & 0x3FFu), result);
  return static_cast<uint16_t>(result | sign);
}

inline __attribute__((always_inline)) float from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7FFFu;
  const float small = static_cast<float>(static_cast<int32_t>(magnitude & 0x3FFu)) * 0x1.0p-24f;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  uint32_t result = detail::pick(magnitude < 0x400u, std::bit_cast<uint32_t>(small), normal);
  result = detail::pick(magnitude >= 0x7C00u, 0x7F800000u | magnitude << 13, result);
  result |= detail::pick(magnitude > 0x7C00u, 0x400000u, 0u);
  return std::bit_cast<float>(result | sign);
}

inline __attribute__((always_inline)) uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
  return static_cast<uint16_t>(detail::pick(is_nan, bits | 0x400000u, rounded) >> 16);
}

inline __attribute__((always_inline)) float from_bf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

void floats_to_f16(const float* values, int64_t count, uint16_t* halves);
void floats_to_bf16(const float* values, int64_t count, uint16_t* halves);
void f16_to_floats(const uint16_t* halves, int64_t count, float* values);
void bf16_to_floats(const uint16_t* halves, int64_t count, float* values);

// The functions over arrays for each instruction set that this processor has, plainest first, so
// that tests can compare them.
struct HalfFunctions {
  void (*floats_to_f16)(const float*, int64_t, uint16_t*);
  void (*floats_to_bf16)(const float*, int64_t, uint16_t*);
  void (*f16_to_floats)(const uint16_t*, int64_t, float*);
  void (*bf16_to_floats)(const uint16_t*, int64_t, float*);
};
std::vector<HalfFunctions> half_functions();

}  // namespace millrace
