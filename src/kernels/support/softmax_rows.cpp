#include "kernels/support/softmax_rows.h"

#include <algorithm>

#include "kernels/support/vector_math.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kRowChunk = 1024;

MILLRACE_INLINE float maximum_of(const float* x, int64_t count) {
  float maximum = x[0];
  int64_t i = 0;
  if (count >= kFloatLanes) {
    FloatLanes best;
    load_lanes(x, best);
    for (i = kFloatLanes; i + kFloatLanes <= count; i += kFloatLanes) {
      FloatLanes next;
      load_lanes(x + i, next);
      best = next > best ? next : best;
    }
    for (int lane = 0; lane < kFloatLanes; ++lane) {
      maximum = best[lane] > maximum ? best[lane] : maximum;
    }
  }
  for (; i < count; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  return maximum;
}

// Exponentials of chunk after chunk go to out, or each over the last where only sums are wanted.
template <bool kKeep>
MILLRACE_INLINE void pass_over_row(const float* __restrict x, int64_t count, float* __restrict out,
                                   RowSums* sums) {
  const float maximum = maximum_of(x, count);
  DoubleLanes exponentials = {};
  DoubleLanes shifted = {};
  *sums = {maximum, 0, 0};
  for (int64_t begin = 0; begin < count; begin += kRowChunk) {
    const int64_t size = std::min(kRowChunk, count - begin);
    const float* from = x + begin;
    float* to = kKeep ? out + begin : out;
    for (int64_t i = 0; i < size; ++i) to[i] = vector_exp(from[i] - maximum);
    int64_t i = 0;
    for (; i + kDoubleLanes <= size; i += kDoubleLanes) {
      DoubleLanes wide;
      load_lanes(from + i, wide);
      shifted += wide - static_cast<double>(maximum);
      load_lanes(to + i, wide);
      exponentials += wide;
    }
    for (; i < size; ++i) {
      sums->shifted += static_cast<double>(from[i]) - maximum;
      sums->exponentials += to[i];
    }
  }
  sums->exponentials += sum_of_lanes(exponentials);
  sums->shifted += sum_of_lanes(shifted);
}

}  // namespace

MILLRACE_VECTORIZED void exponentiate_row(const float* x, int64_t count, float* out,
                                          RowSums* sums) {
  pass_over_row<true>(x, count, out, sums);
}

MILLRACE_VECTORIZED void sum_row(const float* x, int64_t count, RowSums* sums) {
  float chunk[kRowChunk];
  pass_over_row<false>(x, count, chunk, sums);
}

MILLRACE_VECTORIZED void scale_row(float* row, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) row[i] *= factor;
}

MILLRACE_VECTORIZED void shift_row(const float* probability, int64_t count, float shift,
                                   float factor, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = (probability[i] - shift) * factor;
}

MILLRACE_VECTORIZED void probabilities_of_row(const float* x, int64_t count, float maximum,
                                              float scale, float* out) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = vector_exp(x[i] - maximum) * scale;
}

MILLRACE_VECTORIZED int32_t rank_in_row(const float* row, int32_t count, int32_t ties,
                                        float bound) {
  int32_t rank = 0;
  for (int32_t c = 0; c < ties; ++c) rank += row[c] >= bound;
  for (int32_t c = ties; c < count; ++c) rank += row[c] > bound;
  return rank;
}

}  // namespace millrace::kernels
