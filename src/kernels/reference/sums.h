// Double-precision scratch of the naive kernels, in their workspace.
#pragma once

#include <algorithm>

#include "kernels/kernel.h"

namespace millrace::kernels {

inline uint64_t bytes_of_sums(int64_t count) {
  return static_cast<uint64_t>(count) * sizeof(double);
}

inline double* zeroed_sums(const KernelArguments& arguments, int64_t count) {
  auto* sums = reinterpret_cast<double*>(arguments.workspace);
  std::fill(sums, sums + count, 0.0);
  return sums;
}

inline void store_sums(const double* sums, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(sums[i]);
}

}  // namespace millrace::kernels
