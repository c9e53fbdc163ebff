// The code behind TileLoops, for vectors of any length; each file that includes it is compiled for
// one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/support/float_vector.h"
#include "kernels/winograd/tile_loops.h"

namespace millrace::kernels::tile_code {
namespace {

constexpr int kPoints = 6;  // in a row: 0, a, -a, b, -b and infinity
constexpr float kA = 0.625f;
constexpr float kB = 1.5f;
constexpr float kA2 = kA * kA;
constexpr float kB2 = kB * kB;

// ---- One row or column, to the points or back.

template <typename Vector>
MILLRACE_INLINE void input_to_points(const Vector (&x)[6], Vector (&p)[6]) {
  const Vector even_a = x[4] - kB2 * x[2];
  const Vector odd_a = x[3] - kB2 * x[1];
  const Vector even_b = x[4] - kA2 * x[2];
  const Vector odd_b = x[3] - kA2 * x[1];
  p[0] = even_b + kB2 * (kA2 * x[0] - x[2]);
  p[1] = even_a + kA * odd_a;
  p[2] = even_a - kA * odd_a;
  p[3] = even_b + kB * odd_b;
  p[4] = even_b - kB * odd_b;
  p[5] = x[5] - kA2 * x[3] - kB2 * odd_b;
}

template <typename Vector>
MILLRACE_INLINE void points_to_output(const Vector (&p)[6], Vector (&y)[4]) {
  const Vector sum_a = p[1] + p[2];
  const Vector difference_a = p[1] - p[2];
  const Vector sum_b = p[3] + p[4];
  const Vector difference_b = p[3] - p[4];
  y[0] = p[0] + (sum_a + sum_b);
  y[1] = kA * difference_a + kB * difference_b;
  y[2] = kA2 * sum_a + kB2 * sum_b;
  y[3] = (kA2 * kA) * difference_a + ((kB2 * kB) * difference_b + p[5]);
}

template <typename Vector>
MILLRACE_INLINE void gradient_to_points(const Vector (&y)[4], Vector (&p)[6]) {
  const Vector even_a = y[0] + kA2 * y[2];
  const Vector odd_a = kA * (y[1] + kA2 * y[3]);
  const Vector even_b = y[0] + kB2 * y[2];
  const Vector odd_b = kB * (y[1] + kB2 * y[3]);
  p[0] = y[0];
  p[1] = even_a + odd_a;
  p[2] = even_a - odd_a;
  p[3] = even_b + odd_b;
  p[4] = even_b - odd_b;
  p[5] = y[3];
}

constexpr float kAtZero = 1 / (kA2 * kB2);
constexpr float kAtA = 1 / (2 * kA2 * (kA2 - kB2));
constexpr float kAtB = 1 / (2 * kB2 * (kB2 - kA2));

template <typename Vector>
MILLRACE_INLINE void weights_to_points(const Vector (&w)[3], Vector (&p)[6]) {
  const Vector even_a = kAtA * (w[0] + kA2 * w[2]);
  const Vector odd_a = (kAtA * kA) * w[1];
  const Vector even_b = kAtB * (w[0] + kB2 * w[2]);
  const Vector odd_b = (kAtB * kB) * w[1];
  p[0] = kAtZero * w[0];
  p[1] = even_a + odd_a;
  p[2] = even_a - odd_a;
  p[3] = even_b + odd_b;
  p[4] = even_b - odd_b;
  p[5] = w[2];
}

template <typename Vector>
MILLRACE_INLINE void points_to_weights(const Vector (&p)[6], Vector (&w)[3]) {
  const Vector sum_a = kAtA * (p[1] + p[2]);
  const Vector sum_b = kAtB * (p[3] + p[4]);
  w[0] = kAtZero * p[0] + (sum_a + sum_b);
  w[1] = (kAtA * kA) * (p[1] - p[2]) + (kAtB * kB) * (p[3] - p[4]);
  w[2] = kA2 * sum_a + (kB2 * sum_b + p[5]);
}

// ---- Tiles.

// Walks through the tiles of a piece.
struct TilePlace {
  int64_t image;
  int64_t down;
  int64_t across;

  TilePlace(const TiledImages& images, int64_t tile)
      : image(tile / images.tiles_per_image()),
        down(tile % images.tiles_per_image() / images.tiles_across),
        across(tile % images.tiles_across) {}

  MILLRACE_INLINE void advance(const TiledImages& images) {
    if (++across < images.tiles_across) return;
    across = 0;
    if (++down < images.tiles_down) return;
    down = 0;
    ++image;
  }
};

// The kSize x kSize values of a tile as the loops read them: in the image itself, or copied with
// zeros around where the tile reaches over the edge.
template <int kLanes, int kSize>
struct TileWindow {
  const float* start;
  int64_t row;  // floats
  float copy[kSize * kSize * kLanes];

  MILLRACE_INLINE void place(const float* plane, const TiledImages& images, int64_t top,
                             int64_t left) {
    if (top >= 0 && left >= 0 && top + kSize <= images.height && left + kSize <= images.width) {
      start = plane + (top * images.width + left) * kLanes;
      row = images.width * kLanes;
      return;
    }
    start = copy;
    row = kSize * kLanes;
    using Vector = typename FloatVector<kLanes>::Type;
#pragma GCC unroll 16
    for (int r = 0; r < kSize; ++r) {
      const int64_t y = top + r;
      const bool inside = y >= 0 && y < images.height;
#pragma GCC unroll 16
      for (int c = 0; c < kSize; ++c) {
        const int64_t x = left + c;
        const bool valid = inside && x >= 0 && x < images.width;
        const Vector value =
            valid ? FloatVector<kLanes>::load(plane + (y * images.width + x) * kLanes) : Vector{};
        FloatVector<kLanes>::store(copy + (r * kSize + c) * kLanes, value);
      }
    }
  }
};

template <int kLanes>
void cut_tiles(const float* x, const TiledImages& images, const TilePiece& piece, float* points) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  const int64_t blocks = images.channels / kLanes;
  TileWindow<kLanes, kPoints> window;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    for (int64_t t = 0; t < piece.count; ++t, place.advance(images)) {
      const float* plane =
          x + (place.image * blocks + block) * images.height * images.width * kLanes;
      window.place(plane, images, place.down * kWinogradTile - images.padding,
                   place.across * kWinogradTile - images.padding);
      Vector half[kPoints][kPoints];
#pragma GCC unroll 16
      for (int c = 0; c < kPoints; ++c) {
        Vector column[6];
        Vector result[6];
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) {
          column[r] = Lanes::load(window.start + r * window.row + c * kLanes);
        }
        input_to_points(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) half[r][c] = result[r];
      }
      float* to = points + t * images.channels + block * kLanes;
#pragma GCC unroll 16
      for (int r = 0; r < kPoints; ++r) {
        Vector result[6];
        input_to_points(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < 6; ++c) Lanes::store(to + (r * 6 + c) * piece.plane, result[c]);
      }
    }
  }
}

template <int kLanes>
void cut_gradient_tiles(const float* dy, const TiledImages& images, const TilePiece& piece,
                        float* points, float* sums) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kPanel = 2 * kLanes;
  const int64_t blocks = images.channels / kLanes;
  TileWindow<kLanes, kWinogradTile> window;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    Vector total = {};
    float* to = points + block / 2 * piece.rows * kPanel + block % 2 * kLanes;
    for (int64_t t = 0; t < piece.count; ++t, place.advance(images), to += kPanel) {
      const float* plane =
          dy + (place.image * blocks + block) * images.height * images.width * kLanes;
      window.place(plane, images, place.down * kWinogradTile, place.across * kWinogradTile);
      Vector half[kPoints][kWinogradTile];
      Vector tile_total = {};
#pragma GCC unroll 16
      for (int c = 0; c < kWinogradTile; ++c) {
        Vector column[4];
        Vector result[6];
#pragma GCC unroll 16
        for (int r = 0; r < 4; ++r) {
          column[r] = Lanes::load(window.start + r * window.row + c * kLanes);
        }
        tile_total += (column[0] + column[1]) + (column[2] + column[3]);
        gradient_to_points(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) half[r][c] = result[r];
      }
      total += tile_total;
#pragma GCC unroll 16
      for (int r = 0; r < kPoints; ++r) {
        Vector result[6];
        gradient_to_points(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < 6; ++c) Lanes::store(to + (r * 6 + c) * piece.plane, result[c]);
      }
    }
    if (sums != nullptr) {
      Lanes::store(sums + block * kLanes, Lanes::load(sums + block * kLanes) + total);
    }
  }
}

template <int kLanes>
void join_tiles(const float* points, const TiledImages& images, const TilePiece& piece,
                const float* bias, bool relu, float* y) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kPanel = 2 * kLanes;
  const int64_t blocks = images.channels / kLanes;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    const Vector start = bias != nullptr ? Lanes::load(bias + block * kLanes) : Vector{};
    const float* from = points + block / 2 * piece.rows * kPanel + block % 2 * kLanes;
    for (int64_t t = 0; t < piece.count; ++t, place.advance(images), from += kPanel) {
      Vector half[kWinogradTile][kPoints];
#pragma GCC unroll 16
      for (int c = 0; c < kPoints; ++c) {
        Vector column[6];
        Vector result[4];
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) column[r] = Lanes::load(from + (r * 6 + c) * piece.plane);
        points_to_output(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < 4; ++r) half[r][c] = result[r];
      }
      const int64_t top = place.down * kWinogradTile;
      const int64_t left = place.across * kWinogradTile;
      const int64_t down =
          images.height - top < kWinogradTile ? images.height - top : kWinogradTile;
      const int64_t across =
          images.width - left < kWinogradTile ? images.width - left : kWinogradTile;
      float* to =
          y +
          (((place.image * blocks + block) * images.height + top) * images.width + left) * kLanes;
#pragma GCC unroll 16
      for (int r = 0; r < kWinogradTile; ++r) {
        if (r >= down) break;
        Vector result[4];
        points_to_output(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < 4; ++c) {
          if (c >= across) break;
          Vector value = result[c] + start;
          if (relu) value = value < 0.0f ? Vector{} : value;
          Lanes::store(to + (r * images.width + c) * kLanes, value);
        }
      }
    }
  }
}

// ---- Weights.

template <int kLanes>
MILLRACE_INLINE void cut_kernel(const float* w, int64_t across, float* to, int64_t plane) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector half[kPoints][3];
#pragma GCC unroll 16
  for (int c = 0; c < 3; ++c) {
    Vector column[3];
    Vector result[6];
#pragma GCC unroll 16
    for (int r = 0; r < 3; ++r) column[r] = Lanes::load(w + (r * 3 + c) * across);
    weights_to_points(column, result);
#pragma GCC unroll 16
    for (int r = 0; r < 6; ++r) half[r][c] = result[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < kPoints; ++r) {
    Vector result[6];
    weights_to_points(half[r], result);
#pragma GCC unroll 16
    for (int c = 0; c < 6; ++c) Lanes::store(to + (r * 6 + c) * plane, result[c]);
  }
}

template <int kLanes>
void cut_weight_tiles(const float* w, int64_t inputs, int64_t outputs, int64_t block, int64_t plane,
                      float* points) {
  constexpr int64_t kSquare = int64_t{kLanes} * kLanes;
  const int64_t input_blocks = inputs / kLanes;
  for (int64_t o = 0; o < outputs / kLanes; ++o) {
    const float* from = w + (o * input_blocks + block) * 9 * kSquare;
    float* to = points + (o / 2 * inputs + block * kLanes) * 2 * kLanes + o % 2 * kLanes;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      cut_kernel<kLanes>(from + i * kLanes, kSquare, to + i * 2 * kLanes, plane);
    }
  }
}

template <int kLanes>
void cut_turned_weight_tiles(const float* w, int64_t inputs, int64_t outputs, int64_t block,
                             int64_t plane, float* points) {
  constexpr int kSquare = kLanes * kLanes;
  const int64_t input_blocks = inputs / kLanes;
  float turned[9 * kSquare];
  for (int64_t i = 0; i < input_blocks; ++i) {
    const float* from = w + (block * input_blocks + i) * 9 * kSquare;
#pragma GCC unroll 16
    for (int k = 0; k < 9; ++k) {
#pragma GCC unroll 16
      for (int row = 0; row < kLanes; ++row) {
#pragma GCC unroll 16
        for (int column = 0; column < kLanes; ++column) {
          turned[(8 - k) * kSquare + column * kLanes + row] =
              from[k * kSquare + row * kLanes + column];
        }
      }
    }
    float* to = points + (i / 2 * outputs + block * kLanes) * 2 * kLanes + i % 2 * kLanes;
#pragma GCC unroll 16
    for (int o = 0; o < kLanes; ++o) {
      cut_kernel<kLanes>(turned + o * kLanes, kSquare, to + o * 2 * kLanes, plane);
    }
  }
}

template <int kLanes>
void join_weight_tiles(const float* points, int64_t inputs, int64_t outputs, int64_t block,
                       int64_t plane, float* w) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kSquare = int64_t{kLanes} * kLanes;
  const int64_t input_blocks = inputs / kLanes;
  for (int64_t o = 0; o < outputs / kLanes; ++o) {
    const float* from = points + (o / 2 * inputs + block * kLanes) * 2 * kLanes + o % 2 * kLanes;
    float* to = w + (o * input_blocks + block) * 9 * kSquare;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, from += 2 * kLanes, to += kLanes) {
      Vector half[3][kPoints];
#pragma GCC unroll 16
      for (int c = 0; c < kPoints; ++c) {
        Vector column[6];
        Vector result[3];
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) column[r] = Lanes::load(from + (r * 6 + c) * plane);
        points_to_weights(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < 3; ++r) half[r][c] = result[r];
      }
#pragma GCC unroll 16
      for (int r = 0; r < 3; ++r) {
        Vector result[3];
        points_to_weights(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < 3; ++c) Lanes::store(to + (r * 3 + c) * kSquare, result[c]);
      }
    }
  }
}

// ---- Products.

// kRows rows of one panel of the result, in registers.
template <int kLanes, int kRows, bool kAlong>
MILLRACE_INLINE void multiply_rows(const float* a, int64_t row, int64_t step, int64_t depth,
                                   const float* b, float* c, bool add) {
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
                      float* c) {
  if (count == kRows) {
    return multiply_rows<kLanes, kRows, kAlong>(product.a + first * product.row, product.row,
                                                product.step, product.depth, b,
                                                c + first * 2 * kLanes, product.add);
  }
  if constexpr (kRows > 1) {
    multiply_so_many<kLanes, kRows - 1, kAlong>(product, first, count, b, c);
  }
}

// All rows of a panel, at most kRows at a time, and about equally many, so that no few are left
// over.
template <int kLanes, int kRows, bool kAlong>
void multiply_panel(const PanelProduct& product, const float* b, float* c) {
  int64_t first = 0;
  for (int64_t left = (product.rows + kRows - 1) / kRows; left > 0; --left) {
    const int64_t count = (product.rows - first + left - 1) / left;
    multiply_so_many<kLanes, kRows, kAlong>(product, first, count, b, c);
    first += count;
  }
}

template <int kLanes, int kRows, bool kAlong>
void multiply_all(const PanelProduct& product) {
  for (int64_t panel = 0; panel < product.panels; ++panel) {
    multiply_panel<kLanes, kRows, kAlong>(product, product.b + panel * product.b_panel,
                                          product.c + panel * product.c_panel);
  }
}

// Rows of `a` follow each other along its columns (step 1) or the other way round (row 1).
template <int kLanes, int kRows>
void multiply_panels(const PanelProduct& product) {
  if (product.step == 1) return multiply_all<kLanes, kRows, true>(product);
  multiply_all<kLanes, kRows, false>(product);
}

template <int kLanes, int kRows>
constexpr TileLoops make_tile_loops() {
  return {kLanes,
          2 * kLanes,
          cut_tiles<kLanes>,
          cut_gradient_tiles<kLanes>,
          join_tiles<kLanes>,
          cut_weight_tiles<kLanes>,
          join_weight_tiles<kLanes>,
          cut_turned_weight_tiles<kLanes>,
          multiply_panels<kLanes, kRows>};
}

}  // namespace
}  // namespace millrace::kernels::tile_code
