// The products at the points behind TileLoops, for vectors of any length; included by tile_code.h
// alone, as what it says of the code there holds here.
#pragma once

#include "kernels/support/float_vector.h"
#include "kernels/winograd/tile_loops.h"

namespace millrace::kernels::tile_code {
namespace {

constexpr int kLine = 16;  // floats of a cache line

// What is brought nearer during the products of a panel, a line at each step of their depth.
struct LinesAhead {
  NextLines ranges[3];
  int current = 0;

  // Where to go on for so many steps; without anything left at `near`, which is there already.
  MILLRACE_INLINE const float* take(int64_t steps, const float* near) {
    while (current < 3 && ranges[current].floats <= 0) ++current;
    if (current == 3) return near;
    NextLines& range = ranges[current];
    const float* first = range.first;
    range.first += steps * kLine;
    range.floats -= steps * kLine;
    return first;
  }
};

// kRows rows of one panel of the result, in registers.
template <int kLanes, int kRows, bool kAlong>
MILLRACE_INLINE void multiply_rows(const float* a, int64_t row, int64_t step, int64_t depth,
                                   const float* b, float* c, bool add, const float* ahead) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector left[kRows];
  Vector right[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    left[r] = add ? Lanes::load(c + r * 2 * kLanes) : Vector{};
    right[r] = add ? Lanes::load(c + r * 2 * kLanes + kLanes) : Vector{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Vector first = Lanes::load(b);
    const Vector second = Lanes::load(b + kLanes);
    b += 2 * kLanes;
    __builtin_prefetch(ahead, 0, 2);
    ahead += kLine;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float value = kAlong ? a[r * row] : a[r];
      left[r] += value * first;
      right[r] += value * second;
    }
    a += kAlong ? 1 : step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    Lanes::store(c + r * 2 * kLanes, left[r]);
    Lanes::store(c + r * 2 * kLanes + kLanes, right[r]);
  }
}

template <int kLanes, int kRows, bool kAlong>
void multiply_so_many(const PanelProduct& product, int64_t first, int64_t count, const float* b,
                      float* c, const float* ahead) {
  if (count == kRows) {
    return multiply_rows<kLanes, kRows, kAlong>(product.a + first * product.row, product.row,
                                                product.step, product.depth, b,
                                                c + first * 2 * kLanes, product.add, ahead);
  }
  if constexpr (kRows > 1) {
    multiply_so_many<kLanes, kRows - 1, kAlong>(product, first, count, b, c, ahead);
  }
}

// All rows of a panel, at most kRows at a time, and about equally many, so that no few are left
// over.
template <int kLanes, int kRows, bool kAlong>
void multiply_panel(const PanelProduct& product, const float* b, float* c, LinesAhead& lines) {
  int64_t first = 0;
  for (int64_t left = (product.rows + kRows - 1) / kRows; left > 0; --left) {
    const int64_t count = (product.rows - first + left - 1) / left;
    multiply_so_many<kLanes, kRows, kAlong>(product, first, count, b, c,
                                            lines.take(product.depth, b));
    first += count;
  }
}

// The part of a panel.
MILLRACE_INLINE NextLines part_of(const NextLines& lines, int64_t panel, int64_t panels) {
  const int64_t first = lines.floats * panel / panels;
  return {lines.first + first, lines.floats * (panel + 1) / panels - first};
}

template <int kLanes, int kRows, bool kAlong>
void multiply_all(const PanelProduct& product) {
  for (int64_t panel = 0; panel < product.panels; ++panel) {
    const float* b = product.b + panel * product.b_panel;
    const bool last = panel + 1 == product.panels;
    LinesAhead lines = {
        {last ? product.next_b : NextLines{b + product.b_panel, product.depth * 2 * kLanes},
         part_of(product.next_a, panel, product.panels),
         part_of(product.next_c, panel, product.panels)}};
    multiply_panel<kLanes, kRows, kAlong>(product, b, product.c + panel * product.c_panel, lines);
  }
}

// Rows of `a` follow each other along its columns (step 1) or the other way round (row 1).
template <int kLanes, int kRows>
void multiply_panels(const PanelProduct& product) {
  if (product.step == 1) return multiply_all<kLanes, kRows, true>(product);
  multiply_all<kLanes, kRows, false>(product);
}

}  // namespace
}  // namespace millrace::kernels::tile_code
