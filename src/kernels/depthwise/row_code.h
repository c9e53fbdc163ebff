// The code behind DepthwiseLoops, for vectors of any length; each file that includes it is compiled
// for one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/depthwise/row_loops.h"
#include "kernels/support/float_vector.h"

namespace millrace::kernels::row_code {
namespace {

constexpr int kTogether = 8;  // outputs whose sums are made side by side

// Outputs from `begin` to `end` have all their taps inside the image.
struct InsideOutputs {
  int64_t begin;
  int64_t end;
};

MILLRACE_INLINE InsideOutputs inside_of(const TapRows& rows) {
  const int64_t before = rows.left < 0 ? (rows.stride - 1 - rows.left) / rows.stride : 0;
  const int64_t room = rows.width - rows.taps - rows.left;
  const int64_t past = room < 0 ? 0 : room / rows.stride + 1;
  const int64_t end = past < rows.count ? past : rows.count;
  return before < end ? InsideOutputs{before, end} : InsideOutputs{rows.count, rows.count};
}

// What convolve writes, and how.
struct RowTarget {
  const float* weights;
  const float* bias;
  bool relu;
  float* y;
  int64_t step;
};

template <int kLanes>
MILLRACE_INLINE void finish(const RowTarget& to, int64_t output,
                            typename FloatVector<kLanes>::Type sum) {
  if (to.relu) sum = sum < 0 ? typename FloatVector<kLanes>::Type{} : sum;  // keeps NaN
  FloatVector<kLanes>::store(to.y + output * to.step, sum);
}

// `kMany` outputs side by side, with all taps inside.
template <int kLanes, int kTaps, int kStride, int kMany>
MILLRACE_INLINE void convolve_inside(const TapRows& rows, const RowTarget& to, int64_t output) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  const Vector start = to.bias == nullptr ? Vector{} : Lanes::load(to.bias);
  Vector sums[kMany];
#pragma GCC unroll 16
  for (int i = 0; i < kMany; ++i) sums[i] = start;
  const float* x = rows.x + (rows.left + output * kStride) * kLanes;
  const float* w = to.weights;
  for (int64_t row = 0; row < rows.rows; ++row, x += rows.x_row, w += kTaps * kLanes) {
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      const Vector weight = Lanes::load(w + tap * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kMany; ++i) {
        sums[i] += weight * Lanes::load(x + (i * kStride + tap) * kLanes);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kMany; ++i) finish<kLanes>(to, output + i, sums[i]);
}

template <int kLanes, int kTaps>
MILLRACE_INLINE void convolve_edge(const TapRows& rows, const RowTarget& to, int64_t output) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector sum = to.bias == nullptr ? Vector{} : Lanes::load(to.bias);
  const int64_t column = rows.left + output * rows.stride;
  const float* x = rows.x + column * kLanes;
  const float* w = to.weights;
  for (int64_t row = 0; row < rows.rows; ++row, x += rows.x_row, w += kTaps * kLanes) {
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      if (column + tap < 0 || column + tap >= rows.width) continue;
      sum += Lanes::load(w + tap * kLanes) * Lanes::load(x + tap * kLanes);
    }
  }
  finish<kLanes>(to, output, sum);
}

template <int kLanes, int kTaps, int kStride>
void convolve_row(const TapRows& rows, const RowTarget& to) {
  const InsideOutputs inside = inside_of(rows);
  for (int64_t i = 0; i < inside.begin; ++i) convolve_edge<kLanes, kTaps>(rows, to, i);
  int64_t i = inside.begin;
  for (; i + kTogether <= inside.end; i += kTogether) {
    convolve_inside<kLanes, kTaps, kStride, kTogether>(rows, to, i);
  }
  for (; i + kTogether / 2 <= inside.end; i += kTogether / 2) {
    convolve_inside<kLanes, kTaps, kStride, kTogether / 2>(rows, to, i);
  }
  for (; i < inside.end; ++i) convolve_inside<kLanes, kTaps, kStride, 1>(rows, to, i);
  for (; i < rows.count; ++i) convolve_edge<kLanes, kTaps>(rows, to, i);
}

template <int kLanes, int kTaps>
void convolve_taps(const TapRows& rows, const RowTarget& to) {
  if constexpr (kTaps > 1) {
    if (rows.taps < kTaps) return convolve_taps<kLanes, kTaps - 1>(rows, to);
  }
  if (rows.stride == 1) return convolve_row<kLanes, kTaps, 1>(rows, to);
  convolve_row<kLanes, kTaps, 2>(rows, to);
}

template <int kLanes>
void convolve(const TapRows& rows, const float* weights, const float* bias, bool relu, float* y,
              int64_t step) {
  convolve_taps<kLanes, kMostTaps>(rows, {weights, bias, relu, y, step});
}

// ---- Sums of taps.

// Adds an output's products to the sums of `kRows` rows; at an edge those taps that are inside.
template <int kLanes, int kTaps, int kRows, bool kEdge>
MILLRACE_INLINE void correlate_output(const TapRows& rows, const float* dy, int64_t output,
                                      typename FloatVector<kLanes>::Type (&sums)[kRows][kTaps]) {
  using Lanes = FloatVector<kLanes>;
  const auto gradient = Lanes::load(dy + output * kLanes);
  const int64_t column = rows.left + output * rows.stride;
  const float* x = rows.x + column * kLanes;
#pragma GCC unroll 16
  for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      if (kEdge && (column + tap < 0 || column + tap >= rows.width)) continue;
      sums[row][tap] += gradient * Lanes::load(x + row * rows.x_row + tap * kLanes);
    }
  }
}

template <int kLanes, int kTaps, int kRows>
void correlate_rows(const TapRows& rows, const float* dy, float* to) {
  using Lanes = FloatVector<kLanes>;
  typename Lanes::Type sums[kRows][kTaps];
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kTaps; ++i) {
    sums[i / kTaps][i % kTaps] = Lanes::load(to + i * kLanes);
  }
  const InsideOutputs inside = inside_of(rows);
  int64_t i = 0;
  for (; i < inside.begin; ++i) correlate_output<kLanes, kTaps, kRows, true>(rows, dy, i, sums);
  for (; i < inside.end; ++i) correlate_output<kLanes, kTaps, kRows, false>(rows, dy, i, sums);
  for (; i < rows.count; ++i) correlate_output<kLanes, kTaps, kRows, true>(rows, dy, i, sums);
#pragma GCC unroll 32
  for (int j = 0; j < kRows * kTaps; ++j) {
    Lanes::store(to + j * kLanes, sums[j / kTaps][j % kTaps]);
  }
}

template <int kLanes, int kTaps, int kRows>
void correlate_so_many(const TapRows& rows, const float* dy, float* sums) {
  if constexpr (kRows > 1) {
    if (rows.rows < kRows) return correlate_so_many<kLanes, kTaps, kRows - 1>(rows, dy, sums);
  }
  correlate_rows<kLanes, kTaps, kRows>(rows, dy, sums);
}

// As many rows at a time as leave the sums in registers.
template <int kLanes, int kTaps, int kSums>
void correlate_taps(TapRows rows, const float* dy, float* sums) {
  if constexpr (kTaps > 1) {
    if (rows.taps < kTaps) return correlate_taps<kLanes, kTaps - 1, kSums>(rows, dy, sums);
  }
  constexpr int kRows = kSums / kTaps < kTaps ? kSums / kTaps : kTaps;
  for (int64_t left = rows.rows; left > 0; left -= kRows) {
    rows.rows = left;
    correlate_so_many<kLanes, kTaps, kRows>(rows, dy, sums);
    rows.x += kRows * rows.x_row;
    sums += kRows * kTaps * kLanes;
  }
}

template <int kLanes, int kSums>
void correlate(const TapRows& rows, const float* dy, float* sums) {
  correlate_taps<kLanes, kMostTaps, kSums>(rows, dy, sums);
}

template <int kLanes, int kSums>
constexpr DepthwiseLoops make_depthwise_loops() {
  return {kLanes, convolve<kLanes>, correlate<kLanes, kSums>};
}

}  // namespace
}  // namespace millrace::kernels::row_code
