// The code behind PanelLoops, for vectors of any length; each file that includes it is compiled for
// one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/panels/panel_loops.h"
#include "kernels/support/float_vector.h"

namespace millrace::kernels::panel_code {
namespace {

constexpr int kLine = 16;  // floats of a cache line

// Products are summed by themselves before they join what is there: a sum of short ones loses less.

// ---- Pixels.

template <int kLanes, int kPixels, int kColumns, typename Vector>
MILLRACE_INLINE void finish(const PixelProduct& product, int64_t first,
                            Vector (&sums)[kPixels][kColumns]) {
  using Lanes = FloatVector<kLanes>;
  const Ending& ending = *product.ending;
#pragma GCC unroll 16
  for (int column = 0; column < kColumns; ++column) {
    Vector factor = Vector{} + 1.0f;
    Vector offset = {};
    if (ending.factor != nullptr) factor = Lanes::load(ending.factor + column * kLanes);
    if (ending.offset != nullptr) offset = Lanes::load(ending.offset + column * kLanes);
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p) {
      Vector value = sums[p][column] * factor + offset;
      if (ending.residual != nullptr) {
        value += Lanes::load(ending.residual + column * product.c_plane + (first + p) * kLanes);
      }
      if (ending.relu) value = value < 0.0f ? Vector{} : value;
      sums[p][column] = value;
    }
  }
}

template <int kLanes, int kPixels, int kColumns>
void multiply_some_pixels(const PixelProduct& product, int64_t first) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector sums[kPixels][kColumns];
  float* c = product.c + first * kLanes;
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 16
    for (int column = 0; column < kColumns; ++column) sums[p][column] = Vector{};
  }
  const float* a = product.a + first * kLanes;
  const float* b = product.b;
  const float* next = product.next + first * kLanes;
  for (int64_t plane = 0; plane < product.depth; ++plane, a += product.a_plane) {
    for (int line = 0; line < kPixels * kLanes; line += kLine) {
      __builtin_prefetch(a + kPixels * kLanes + line);  // of the pixels that come next
    }
    if (plane < product.next_planes) {
      for (int line = 0; line < kPixels * kLanes; line += kLine) {
        __builtin_prefetch(next + plane * product.a_plane + line, 0, 2);
      }
    }
#pragma GCC unroll 16
    for (int k = 0; k < kLanes; ++k, b += kLanes) {
      Vector weights[kColumns];
#pragma GCC unroll 16
      for (int column = 0; column < kColumns; ++column) {
        weights[column] = Lanes::load(b + column * product.b_column);
      }
#pragma GCC unroll 16
      for (int p = 0; p < kPixels; ++p) {
        const float value = a[p * kLanes + k];
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) {
          sums[p][column] += value * weights[column];
        }
      }
    }
  }
  if (product.add) {
#pragma GCC unroll 16
    for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 16
      for (int column = 0; column < kColumns; ++column) {
        sums[p][column] += Lanes::load(c + column * product.c_plane + p * kLanes);
      }
    }
  }
  if (product.ending != nullptr) finish<kLanes>(product, first, sums);
#pragma GCC unroll 16
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 16
    for (int column = 0; column < kColumns; ++column) {
      Lanes::store(c + column * product.c_plane + p * kLanes, sums[p][column]);
    }
  }
}

template <int kLanes, int kPixels, int kColumns>
void multiply_so_many(const PixelProduct& product, int64_t first, int64_t count) {
  if (count == kPixels) return multiply_some_pixels<kLanes, kPixels, kColumns>(product, first);
  if constexpr (kPixels > 1) multiply_so_many<kLanes, kPixels - 1, kColumns>(product, first, count);
}

// At most kPixels at a time, and about equally many, so that no few are left over.
template <int kLanes, int kPixels, int kColumns>
void multiply_columns(const PixelProduct& product) {
  const int64_t groups = (product.pixels + kPixels - 1) / kPixels;
  int64_t first = 0;
  for (int64_t left = groups; left > 0; --left) {
    const int64_t count = (product.pixels - first + left - 1) / left;
    multiply_so_many<kLanes, kPixels, kColumns>(product, first, count);
    first += count;
  }
}

template <int kLanes, int kPixels>
void multiply_pixels(const PixelProduct& product) {
  if (product.columns == 3) return multiply_columns<kLanes, kPixels, 3>(product);
  if (product.columns == 2) return multiply_columns<kLanes, kPixels, 2>(product);
  multiply_columns<kLanes, kPixels, 1>(product);
}

// ---- Squares.

template <int kLanes, int kRows, int kColumns>
MILLRACE_INLINE void multiply_rows(const SquareProduct& product, int64_t row,
                                   const NextPlane& plane) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector sums[kRows][kColumns];
  float* c = product.c + row * kLanes;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int column = 0; column < kColumns; ++column) sums[r][column] = Vector{};
  }
  for (int64_t image = 0; image < product.images; ++image) {
    const float* a = product.a + image * product.a_image + row;
    const float* b = product.b + image * product.b_image;
    const float* next = plane.pixels + image * plane.image;
    for (int64_t pixel = 0; pixel < product.pixels; ++pixel) {
      __builtin_prefetch(next, 0, 2);
      Vector gradients[kColumns];
#pragma GCC unroll 16
      for (int column = 0; column < kColumns; ++column) {
        gradients[column] = Lanes::load(b + column * product.b_plane);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const float value = a[r];
#pragma GCC unroll 16
        for (int column = 0; column < kColumns; ++column) {
          sums[r][column] += value * gradients[column];
        }
      }
      a += kLanes;
      b += kLanes;
      next += kLanes;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int column = 0; column < kColumns; ++column) {
      float* to = c + column * product.c_column + r * kLanes;
      Lanes::store(to, product.add ? Lanes::load(to) + sums[r][column] : sums[r][column]);
    }
  }
}

// Half of a square's rows at a time: with three columns they fill the registers.
template <int kLanes, int kColumns>
void multiply_halves(const SquareProduct& product) {
  multiply_rows<kLanes, kLanes / 2, kColumns>(product, 0, product.next[0]);
  multiply_rows<kLanes, kLanes / 2, kColumns>(product, kLanes / 2, product.next[1]);
}

template <int kLanes>
void multiply_squares(const SquareProduct& product) {
  if (product.columns == 3) return multiply_halves<kLanes, 3>(product);
  if (product.columns == 2) return multiply_halves<kLanes, 2>(product);
  multiply_halves<kLanes, 1>(product);
}

// ---- Copies.

template <int kLanes>
void gather_pixels(const float* plane, const PixelGrid& grid, int64_t first, int64_t count,
                   float* pixels) {
  using Lanes = FloatVector<kLanes>;
  int64_t down = first / grid.across;
  int64_t across = first % grid.across;
  while (count > 0) {
    const int64_t width = grid.across - across < count ? grid.across - across : count;
    const int64_t y = grid.top + down * grid.stride;
    int64_t x = grid.left + across * grid.stride;
    const bool inside = y >= 0 && y < grid.height;
    const float* row = plane + y * grid.width * kLanes;
    for (int64_t i = 0; i < width; ++i, x += grid.stride, pixels += kLanes) {
      const bool valid = inside && x >= 0 && x < grid.width;
      Lanes::store(pixels, valid ? Lanes::load(row + x * kLanes) : typename Lanes::Type{});
    }
    count -= width;
    across = 0;
    ++down;
  }
}

template <int kLanes>
void scatter_pixels(const float* pixels, const PixelGrid& grid, int64_t first, int64_t count,
                    float* plane) {
  using Lanes = FloatVector<kLanes>;
  int64_t down = first / grid.across;
  int64_t across = first % grid.across;
  for (int64_t i = 0; i < count; ++i, pixels += kLanes) {
    const int64_t y = grid.top + down * grid.stride;
    const int64_t x = grid.left + across * grid.stride;
    Lanes::store(plane + (y * grid.width + x) * kLanes, Lanes::load(pixels));
    if (++across < grid.across) continue;
    across = 0;
    ++down;
  }
}

template <int kLanes>
void turn_square(const float* square, float* turned) {
  for (int r = 0; r < kLanes; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kLanes; ++c) turned[r * kLanes + c] = square[c * kLanes + r];
  }
}

template <int kLanes, int kPixels>
constexpr PanelLoops make_panel_loops() {
  return {kLanes,
          3,
          multiply_pixels<kLanes, kPixels>,
          multiply_squares<kLanes>,
          gather_pixels<kLanes>,
          scatter_pixels<kLanes>,
          turn_square<kLanes>};
}

}  // namespace
}  // namespace millrace::kernels::panel_code
