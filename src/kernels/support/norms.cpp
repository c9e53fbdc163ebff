#include "kernels/support/norms.h"

#include <algorithm>

#include "base/parallel.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

MILLRACE_VECTORIZED double sum_in_double(const float* values, int64_t count) {
  DoubleLanes sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * kDoubleLanes <= count; i += 2 * kDoubleLanes) {
    DoubleLanes first;
    DoubleLanes second;
    load_lanes(values + i, first);
    load_lanes(values + i + kDoubleLanes, second);
    sums[0] += first * first;
    sums[1] += second * second;
  }
  double sum = sum_of_lanes(sums[0]) + sum_of_lanes(sums[1]);
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace

void chunk_squares(const float* values, int64_t count, double* sums) {
  parallel_for(norm_chunks(count), kElementwiseGrain / kNormChunk, [=](int64_t chunk) {
    const int64_t begin = chunk * kNormChunk;
    sums[chunk] = sum_in_double(values + begin, std::min(kNormChunk, count - begin));
  });
}

double sum_squares(const float* values, int64_t count, double* sums) {
  chunk_squares(values, count, sums);
  double sum = 0;
  for (int64_t chunk = 0; chunk < norm_chunks(count); ++chunk) sum += sums[chunk];
  return sum;
}

}  // namespace millrace::kernels
