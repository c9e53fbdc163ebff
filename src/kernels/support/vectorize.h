// What this layer's vector loops share: lanes of a fixed number, whatever the machine has.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/vectorize.h"

namespace millrace::kernels {

// Elements below which a flat loop stays on one thread.
inline constexpr int64_t kElementwiseGrain = 32768;

// Sixteen floats and eight doubles, whatever the machine's registers hold: sums over lanes have
// the same order, and the same result, everywhere.
using FloatLanes = float __attribute__((vector_size(64)));
using DoubleLanes = double __attribute__((vector_size(64)));
using HalfLanes = float __attribute__((vector_size(32)));
inline constexpr int64_t kFloatLanes = 16;
inline constexpr int64_t kDoubleLanes = 8;

// The lanes' sum, first to last.
template <typename Lanes>
MILLRACE_INLINE double sum_of_lanes(const Lanes& lanes) {
  constexpr int kCount = sizeof(Lanes) / sizeof(lanes[0]);
  double sum = 0;
  for (int lane = 0; lane < kCount; ++lane) sum += static_cast<double>(lanes[lane]);
  return sum;
}

MILLRACE_INLINE void load_lanes(const float* from, FloatLanes& lanes) {
  std::memcpy(&lanes, from, sizeof(lanes));
}

// Eight floats as doubles.
MILLRACE_INLINE void load_lanes(const float* from, DoubleLanes& lanes) {
  HalfLanes half;
  std::memcpy(&half, from, sizeof(half));
  lanes = __builtin_convertvector(half, DoubleLanes);
}

}  // namespace millrace::kernels
