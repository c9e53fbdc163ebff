// Elementary functions without branches or table look-ups, for loops that are vectorised and, where
// a Value may be one, for vectors of floats.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/support/vectorize.h"

// Vectors are passed by value only between inlined functions, so their calling convention does
// not matter.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"

namespace millrace::kernels {

// Integers of 32 bits, as many as floats in a Value.
template <typename Value>
struct IntegersFor {
  typedef int32_t Type __attribute__((vector_size(sizeof(Value))));
};
template <>
struct IntegersFor<float> {
  using Type = int32_t;
};

// The same bits as another type.
template <typename To, typename From>
MILLRACE_INLINE To with_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof(to));
  return to;
}

// e^x within 2 units of the last place over the whole range; NaN stays NaN.
template <typename Value>
MILLRACE_INLINE Value vector_exp(Value x) {
  using Integers = typename IntegersFor<Value>::Type;
  x = x < -104.0f ? Value{} - 104.0f : x;
  x = x > 89.0f ? Value{} + 89.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer
  const Value shifted = x * 1.44269504f + kRound;
  const Value k = shifted - kRound;
  const Value r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  Value p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  // 2^k in two factors, so that denormal and infinite results come out by themselves.
  const Integers exponent = with_bits<Integers>(shifted) - with_bits<int32_t>(kRound);
  const Integers half = exponent >> 1;
  const Integers rest = exponent - half;
  return p * with_bits<Value>((half + 127) << 23) * with_bits<Value>((rest + 127) << 23);
}

template <typename Value>
MILLRACE_INLINE Value vector_sigmoid(const Value& x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

template <typename Value>
MILLRACE_INLINE Value vector_silu(const Value& x) {
  return x * vector_sigmoid(x);
}

template <typename Value>
MILLRACE_INLINE Value vector_silu_slope(const Value& x) {
  const Value share = vector_sigmoid(x);
  return share * (1.0f + x * (1.0f - share));
}

template <typename Value>
MILLRACE_INLINE Value vector_hardsigmoid(const Value& x) {
  const Value line = (x + 3.0f) * (1.0f / 6);
  const Value positive = line < 0.0f ? Value{} : line;
  return positive > 1.0f ? Value{} + 1.0f : positive;
}

template <typename Value>
MILLRACE_INLINE Value vector_hardswish(const Value& x) {
  return x * vector_hardsigmoid(x);
}

template <typename Value>
MILLRACE_INLINE Value vector_hardswish_slope(const Value& x) {
  const Value middle = x * (1.0f / 3) + 0.5f;
  const Value low = x < -3.0f ? Value{} : middle;
  return x > 3.0f ? Value{} + 1.0f : low;
}

MILLRACE_INLINE float vector_tanh(float x) {
  const float s = x * x;
  const float near =
      x + x * s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835))));
  const float far = 1.0f - 2.0f / (vector_exp(2.0f * x) + 1.0f);
  return s < 0.09f ? near : far;
}

}  // namespace millrace::kernels

#pragma GCC diagnostic pop
