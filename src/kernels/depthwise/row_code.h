// The code behind DepthwiseLoops, for vectors of any length; each file that includes it is compiled
// for one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/depthwise/row_loops.h"
#include "kernels/support/float_vector.h"

namespace millrace::kernels::row_code {
namespace {

constexpr int kTogether = 8;  // outputs whose sums are made side by side

// An order of the lanes of a vector.
template <int kLanes>
struct LaneOrder {
  using Type __attribute__((vector_size(kLanes * 4))) = int;
};

// The lanes of a vector in the order of a member.
template <int kLanes>
MILLRACE_INLINE typename LaneOrder<kLanes>::Type order_of(int64_t member) {
  typename LaneOrder<kLanes>::Type order = {};
#pragma GCC unroll 16
  for (int lane = 0; lane < kLanes; ++lane) order[lane] = lane ^ static_cast<int>(member);
  return order;
}

template <int kLanes>
MILLRACE_INLINE typename FloatVector<kLanes>::Type in_order(
    typename FloatVector<kLanes>::Type values, typename LaneOrder<kLanes>::Type order) {
#if defined(__clang__)  // which has no shuffle by a variable; fuzz targets are built with it
  typename FloatVector<kLanes>::Type result = {};
  for (int lane = 0; lane < kLanes; ++lane) result[lane] = values[order[lane]];
  return result;
#else
  return __builtin_shuffle(values, order);
#endif
}

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

// Adds the products of a tap for all members.
template <int kLanes, int kMembers>
MILLRACE_INLINE void add_members(const float* weights, const float* x,
                                 typename FloatVector<kLanes>::Type& sum) {
  const auto values = FloatVector<kLanes>::load(x);
  sum += FloatVector<kLanes>::load(weights) * values;
#pragma GCC unroll 4
  for (int member = 1; member < kMembers; ++member) {
    sum += FloatVector<kLanes>::load(weights + member * kLanes) *
           in_order<kLanes>(values, order_of<kLanes>(member));
  }
}

// `kMany` outputs side by side, with all taps inside.
template <int kLanes, int kMembers, int kTaps, int kStride, int kMany>
MILLRACE_INLINE void convolve_inside(const TapRows& rows, const RowTarget& to, int64_t output) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  const Vector start = to.bias == nullptr ? Vector{} : Lanes::load(to.bias);
  Vector sums[kMany];
#pragma GCC unroll 16
  for (int i = 0; i < kMany; ++i) sums[i] = start;
  const float* x = rows.x + (rows.left + output * kStride) * kLanes;
  const float* w = to.weights;
  constexpr int kTap = kMembers * kLanes;
  for (int64_t row = 0; row < rows.rows; ++row, x += rows.x_row, w += kTaps * kTap) {
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
#pragma GCC unroll 16
      for (int i = 0; i < kMany; ++i) {
        add_members<kLanes, kMembers>(w + tap * kTap, x + (i * kStride + tap) * kLanes, sums[i]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kMany; ++i) finish<kLanes>(to, output + i, sums[i]);
}

template <int kLanes, int kMembers, int kTaps>
MILLRACE_INLINE void convolve_edge(const TapRows& rows, const RowTarget& to, int64_t output) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector sum = to.bias == nullptr ? Vector{} : Lanes::load(to.bias);
  const int64_t column = rows.left + output * rows.stride;
  const float* x = rows.x + column * kLanes;
  const float* w = to.weights;
  constexpr int kTap = kMembers * kLanes;
  for (int64_t row = 0; row < rows.rows; ++row, x += rows.x_row, w += kTaps * kTap) {
#pragma GCC unroll 16
    for (int tap = 0; tap < kTaps; ++tap) {
      if (column + tap < 0 || column + tap >= rows.width) continue;
      add_members<kLanes, kMembers>(w + tap * kTap, x + tap * kLanes, sum);
    }
  }
  finish<kLanes>(to, output, sum);
}

template <int kLanes, int kMembers, int kTaps, int kStride>
void convolve_row(const TapRows& rows, const RowTarget& to) {
  const InsideOutputs inside = inside_of(rows);
  for (int64_t i = 0; i < inside.begin; ++i) convolve_edge<kLanes, kMembers, kTaps>(rows, to, i);
  int64_t i = inside.begin;
  for (; i + kTogether <= inside.end; i += kTogether) {
    convolve_inside<kLanes, kMembers, kTaps, kStride, kTogether>(rows, to, i);
  }
  for (; i + kTogether / 2 <= inside.end; i += kTogether / 2) {
    convolve_inside<kLanes, kMembers, kTaps, kStride, kTogether / 2>(rows, to, i);
  }
  for (; i < inside.end; ++i) convolve_inside<kLanes, kMembers, kTaps, kStride, 1>(rows, to, i);
  for (; i < rows.count; ++i) convolve_edge<kLanes, kMembers, kTaps>(rows, to, i);
}

template <int kLanes, int kMembers, int kTaps>
void convolve_taps(const TapRows& rows, const RowTarget& to) {
  if constexpr (kTaps > 1) {
    if (rows.taps < kTaps) return convolve_taps<kLanes, kMembers, kTaps - 1>(rows, to);
  }
  if (rows.stride == 1) return convolve_row<kLanes, kMembers, kTaps, 1>(rows, to);
  convolve_row<kLanes, kMembers, kTaps, 2>(rows, to);
}

template <int kLanes>
void convolve(const TapRows& rows, int64_t members, const float* weights, const float* bias,
              bool relu, float* y, int64_t step) {
  const RowTarget to = {weights, bias, relu, y, step};
  if (members == 4) return convolve_taps<kLanes, 4, kMostTapsOfGroups>(rows, to);
  if (members == 2) return convolve_taps<kLanes, 2, kMostTapsOfGroups>(rows, to);
  convolve_taps<kLanes, 1, kMostTaps>(rows, to);
}

// ---- Sums of taps.

// Adds an output's products to the sums of `kRows` rows; at an edge those taps that are inside.
template <int kLanes, bool kAlone, int kTaps, int kRows, bool kEdge>
MILLRACE_INLINE void correlate_output(const TapRows& rows,
                                      const typename LaneOrder<kLanes>::Type& order,
                                      const float* dy, int64_t output,
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
      const auto values = Lanes::load(x + row * rows.x_row + tap * kLanes);
      sums[row][tap] += gradient * (kAlone ? values : in_order<kLanes>(values, order));
    }
  }
}

template <int kLanes, bool kAlone, int kTaps, int kRows>
void correlate_rows(const TapRows& rows, int64_t member, const float* dy, float* to) {
  using Lanes = FloatVector<kLanes>;
  typename Lanes::Type sums[kRows][kTaps];
#pragma GCC unroll 32
  for (int i = 0; i < kRows * kTaps; ++i) {
    sums[i / kTaps][i % kTaps] = Lanes::load(to + i * kLanes);
  }
  const auto order = order_of<kLanes>(member);
  const InsideOutputs inside = inside_of(rows);
  int64_t i = 0;
  for (; i < inside.begin; ++i)
    correlate_output<kLanes, kAlone, kTaps, kRows, true>(rows, order, dy, i, sums);
  for (; i < inside.end; ++i)
    correlate_output<kLanes, kAlone, kTaps, kRows, false>(rows, order, dy, i, sums);
  for (; i < rows.count; ++i)
    correlate_output<kLanes, kAlone, kTaps, kRows, true>(rows, order, dy, i, sums);
#pragma GCC unroll 32
  for (int j = 0; j < kRows * kTaps; ++j) {
    Lanes::store(to + j * kLanes, sums[j / kTaps][j % kTaps]);
  }
}

template <int kLanes, bool kAlone, int kTaps, int kRows>
void correlate_so_many(const TapRows& rows, int64_t member, const float* dy, float* sums) {
  if constexpr (kRows > 1) {
    if (rows.rows < kRows) {
      return correlate_so_many<kLanes, kAlone, kTaps, kRows - 1>(rows, member, dy, sums);
    }
  }
  correlate_rows<kLanes, kAlone, kTaps, kRows>(rows, member, dy, sums);
}

// As many rows at a time as leave the sums in registers.
template <int kLanes, bool kAlone, int kTaps, int kSums>
void correlate_taps(TapRows rows, int64_t member, const float* dy, float* sums) {
  if constexpr (kTaps > 1) {
    if (rows.taps < kTaps) {
      return correlate_taps<kLanes, kAlone, kTaps - 1, kSums>(rows, member, dy, sums);
    }
  }
  constexpr int kRows = kSums / kTaps < kTaps ? kSums / kTaps : kTaps;
  for (int64_t left = rows.rows; left > 0; left -= kRows) {
    rows.rows = left;
    correlate_so_many<kLanes, kAlone, kTaps, kRows>(rows, member, dy, sums);
    rows.x += kRows * rows.x_row;
    sums += kRows * kTaps * kLanes;
  }
}

template <int kLanes, int kSums>
void correlate(const TapRows& rows, int64_t member, const float* dy, float* sums) {
  if (member > 0) {
    return correlate_taps<kLanes, false, kMostTapsOfGroups, kSums>(rows, member, dy, sums);
  }
  correlate_taps<kLanes, true, kMostTaps, kSums>(rows, member, dy, sums);
}

template <int kLanes, int kSums>
constexpr DepthwiseLoops make_depthwise_loops() {
  return {kLanes, convolve<kLanes>, correlate<kLanes, kSums>};
}

}  // namespace
}  // namespace millrace::kernels::row_code
