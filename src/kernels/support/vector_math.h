// Elementary functions without branches or table look-ups, for loops that are vectorised.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/support/vectorize.h"

namespace millrace::kernels {

// e^x within 2 units of the last place over the whole range; NaN stays NaN.
MILLRACE_INLINE float vector_exp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer
  const float shifted = x * 1.44269504f + kRound;
  const float k = shifted - kRound;
  const float r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * (r * r) + r + 1.0f;
  // 2^k in two factors, so that denormal and infinite results come out by themselves.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const auto power = [](int32_t e) {
    return std::bit_cast<float>(static_cast<uint32_t>(e + 127) << 23);
  };
  return p * power(half) * power(exponent - half);
}

MILLRACE_INLINE float vector_sigmoid(float x) { return 1.0f / (1.0f + vector_exp(-x)); }

MILLRACE_INLINE float vector_tanh(float x) {
  const float s = x * x;
  const float near =
      x + x * s * (-1.0f / 3 + s * (2.0f / 15 + s * (-17.0f / 315 + s * (62.0f / 2835))));
  const float far = 1.0f - 2.0f / (vector_exp(2.0f * x) + 1.0f);
  return s < 0.09f ? near : far;
}

}  // namespace millrace::kernels
