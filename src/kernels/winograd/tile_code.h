// The code behind TileLoops, for vectors of any length; each file that includes it is compiled for
// one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/support/float_vector.h"
#include "kernels/winograd/product_code.h"
#include "kernels/winograd/tile_loops.h"
#include "kernels/winograd/tile_window.h"

namespace millrace::kernels::tile_code {
namespace {

constexpr int kPoints = 6;  // in a row: 0, a, -a, b, -b and infinity

// Outputs in a row of a tile, for a kernel of so many.
constexpr int tile_of(int kernel) { return kPoints + 1 - kernel; }

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

// What weights are multiplied with at the points 0, +-a and +-b; outputs are not.
template <bool kWeights>
struct Scales {
  static constexpr float kZero = kWeights ? 1 / (kA2 * kB2) : 1.0f;
  static constexpr float kAtA = kWeights ? 1 / (2 * kA2 * (kA2 - kB2)) : 1.0f;
  static constexpr float kAtB = kWeights ? 1 / (2 * kB2 * (kB2 - kA2)) : 1.0f;
};

// Every other of the values, as coefficients of a polynomial of this square.
template <int kFirst, int kCount, typename Vector>
MILLRACE_INLINE Vector every_other(const Vector (&values)[kCount], float square) {
  constexpr int kLast = kCount - 1 - (kCount - 1 - kFirst) % 2;
  Vector sum = values[kLast];
#pragma GCC unroll 16
  for (int k = kLast - 2; k >= kFirst; k -= 2) sum = values[k] + square * sum;
  return sum;
}

// Weights, or gradients of outputs, to the points.
template <bool kWeights, int kCount, typename Vector>
MILLRACE_INLINE void to_points(const Vector (&values)[kCount], Vector (&p)[6]) {
  using Scale = Scales<kWeights>;
  const Vector even_a = Scale::kAtA * every_other<0>(values, kA2);
  const Vector odd_a = (Scale::kAtA * kA) * every_other<1>(values, kA2);
  const Vector even_b = Scale::kAtB * every_other<0>(values, kB2);
  const Vector odd_b = (Scale::kAtB * kB) * every_other<1>(values, kB2);
  p[0] = Scale::kZero * values[0];
  p[1] = even_a + odd_a;
  p[2] = even_a - odd_a;
  p[3] = even_b + odd_b;
  p[4] = even_b - odd_b;
  p[5] = values[kCount - 1];
}

// Products at the points to gradients of weights, or to outputs.
template <bool kWeights, int kCount, typename Vector>
MILLRACE_INLINE void from_points(const Vector (&p)[6], Vector (&values)[kCount]) {
  using Scale = Scales<kWeights>;
  constexpr float kPowersOfA[] = {1, kA, kA2, kA2 * kA, kA2 * kA2};
  constexpr float kPowersOfB[] = {1, kB, kB2, kB2 * kB, kB2 * kB2};
  const Vector of_a[] = {p[1] + p[2], p[1] - p[2]};
  const Vector of_b[] = {p[3] + p[4], p[3] - p[4]};
#pragma GCC unroll 16
  for (int k = 0; k < kCount; ++k) {
    Vector value = (Scale::kAtB * kPowersOfB[k]) * of_b[k % 2];
    if (k == 0) value += Scale::kZero * p[0];
    if (k == kCount - 1) value += p[5];
    values[k] = (Scale::kAtA * kPowersOfA[k]) * of_a[k % 2] + value;
  }
}

// ---- Images.

template <int kLanes, int kKernel>
void cut_tiles(const float* x, const TiledImages& images, const TilePiece& piece, float* points) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int kTile = tile_of(kKernel);
  const int64_t blocks = images.channels / kLanes;
  TileWindow<kLanes, kPoints> window;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    TilePlace coming(images, piece.first + kTilesAhead);
    for (int64_t t = 0; t < piece.count; ++t, place.advance(images), coming.advance(images)) {
      bring_tile<kLanes, kPoints, kTile, false>(plane_of<kLanes>(x, images, block, coming), images,
                                                coming);
      window.place(plane_of<kLanes>(x, images, block, place), images,
                   place.down * kTile - images.padding, place.across * kTile - images.padding);
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

template <int kLanes, int kKernel>
void cut_gradient_tiles(const float* dy, const TiledImages& images, const TilePiece& piece,
                        float* points, float* sums) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kPanel = 2 * kLanes;
  constexpr int kTile = tile_of(kKernel);
  const int64_t blocks = images.channels / kLanes;
  TileWindow<kLanes, kTile> window;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    TilePlace coming(images, piece.first + kTilesAhead);
    Vector total = {};
    float* to = points + block / 2 * piece.rows * kPanel + block % 2 * kLanes;
    for (int64_t t = 0; t < piece.count;
         ++t, place.advance(images), coming.advance(images), to += kPanel) {
      bring_tile<kLanes, kTile, kTile, false>(plane_of<kLanes>(dy, images, block, coming), images,
                                              coming);
      window.place(plane_of<kLanes>(dy, images, block, place), images, place.down * kTile,
                   place.across * kTile);
      Vector half[kPoints][kTile];
      Vector tile_total = {};
#pragma GCC unroll 16
      for (int c = 0; c < kTile; ++c) {
        Vector column[kTile];
        Vector result[6];
#pragma GCC unroll 16
        for (int r = 0; r < kTile; ++r) {
          column[r] = Lanes::load(window.start + r * window.row + c * kLanes);
        }
        Vector column_total = {};
#pragma GCC unroll 16
        for (int r = 0; r < kTile; r += 2) column_total += column[r] + column[r + 1];
        tile_total += column_total;
        to_points<false>(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) half[r][c] = result[r];
      }
      total += tile_total;
#pragma GCC unroll 16
      for (int r = 0; r < kPoints; ++r) {
        Vector result[6];
        to_points<false>(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < 6; ++c) Lanes::store(to + (r * 6 + c) * piece.plane, result[c]);
      }
    }
    if (sums != nullptr) {
      Lanes::store(sums + block * kLanes, Lanes::load(sums + block * kLanes) + total);
    }
  }
}

template <int kLanes, int kKernel>
void join_tiles(const float* points, const TiledImages& images, const TilePiece& piece,
                const Ending& ending, float* y) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kPanel = 2 * kLanes;
  constexpr int kTile = tile_of(kKernel);
  const int64_t blocks = images.channels / kLanes;
  for (int64_t block = 0; block < blocks; ++block) {
    TilePlace place(images, piece.first);
    TilePlace coming(images, piece.first + kTilesAhead);
    Vector factor = Vector{} + 1.0f;
    Vector offset = {};
    if (ending.factor != nullptr) factor = Lanes::load(ending.factor + block * kLanes);
    if (ending.offset != nullptr) offset = Lanes::load(ending.offset + block * kLanes);
    const float* from = points + block / 2 * piece.rows * kPanel + block % 2 * kLanes;
    for (int64_t t = 0; t < piece.count;
         ++t, place.advance(images), coming.advance(images), from += kPanel) {
      bring_tile<kLanes, kTile, kTile, true>(plane_of<kLanes>(y, images, block, coming), images,
                                             coming);
      Vector half[kTile][kPoints];
#pragma GCC unroll 16
      for (int c = 0; c < kPoints; ++c) {
        Vector column[6];
        Vector result[kTile];
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) column[r] = Lanes::load(from + (r * 6 + c) * piece.plane);
        from_points<false>(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < kTile; ++r) half[r][c] = result[r];
      }
      const int64_t top = place.down * kTile;
      const int64_t left = place.across * kTile;
      const int64_t down = images.height - top < kTile ? images.height - top : kTile;
      const int64_t across = images.width - left < kTile ? images.width - left : kTile;
      const int64_t corner =
          (((place.image * blocks + block) * images.height + top) * images.width + left) * kLanes;
#pragma GCC unroll 16
      for (int r = 0; r < kTile; ++r) {
        if (r >= down) break;
        Vector result[kTile];
        from_points<false>(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < kTile; ++c) {
          if (c >= across) break;
          const int64_t at = corner + (r * images.width + c) * kLanes;
          Vector value = result[c] * factor + offset;
          if (ending.residual != nullptr) value += Lanes::load(ending.residual + at);
          if (ending.relu) value = value < 0.0f ? Vector{} : value;
          Lanes::store(y + at, value);
        }
      }
    }
  }
}

// ---- Weights.

template <int kLanes, int kKernel>
MILLRACE_INLINE void cut_kernel(const float* w, int64_t across, float* to, int64_t plane) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  Vector half[kPoints][kKernel];
#pragma GCC unroll 16
  for (int c = 0; c < kKernel; ++c) {
    Vector column[kKernel];
    Vector result[6];
#pragma GCC unroll 16
    for (int r = 0; r < kKernel; ++r) column[r] = Lanes::load(w + (r * kKernel + c) * across);
    to_points<true>(column, result);
#pragma GCC unroll 16
    for (int r = 0; r < 6; ++r) half[r][c] = result[r];
  }
#pragma GCC unroll 16
  for (int r = 0; r < kPoints; ++r) {
    Vector result[6];
    to_points<true>(half[r], result);
#pragma GCC unroll 16
    for (int c = 0; c < 6; ++c) Lanes::store(to + (r * 6 + c) * plane, result[c]);
  }
}

template <int kLanes, int kKernel>
void cut_weight_tiles(const float* w, int64_t inputs, int64_t outputs, int64_t block, int64_t plane,
                      float* points) {
  constexpr int64_t kSquare = int64_t{kLanes} * kLanes;
  constexpr int64_t kTaps = kKernel * kKernel;
  const int64_t input_blocks = inputs / kLanes;
  for (int64_t o = 0; o < outputs / kLanes; ++o) {
    const float* from = w + (o * input_blocks + block) * kTaps * kSquare;
    float* to = points + (o / 2 * inputs + block * kLanes) * 2 * kLanes + o % 2 * kLanes;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      cut_kernel<kLanes, kKernel>(from + i * kLanes, kSquare, to + i * 2 * kLanes, plane);
    }
  }
}

template <int kLanes, int kKernel>
void cut_turned_weight_tiles(const float* w, int64_t inputs, int64_t outputs, int64_t block,
                             int64_t plane, float* points) {
  constexpr int kSquare = kLanes * kLanes;
  constexpr int kTaps = kKernel * kKernel;
  const int64_t input_blocks = inputs / kLanes;
  float turned[kTaps * kSquare];
  for (int64_t i = 0; i < input_blocks; ++i) {
    const float* from = w + (block * input_blocks + i) * kTaps * kSquare;
    for (int k = 0; k < kTaps; ++k) {
#pragma GCC unroll 16
      for (int row = 0; row < kLanes; ++row) {
#pragma GCC unroll 16
        for (int column = 0; column < kLanes; ++column) {
          turned[(kTaps - 1 - k) * kSquare + column * kLanes + row] =
              from[k * kSquare + row * kLanes + column];
        }
      }
    }
    float* to = points + (i / 2 * outputs + block * kLanes) * 2 * kLanes + i % 2 * kLanes;
#pragma GCC unroll 16
    for (int o = 0; o < kLanes; ++o) {
      cut_kernel<kLanes, kKernel>(turned + o * kLanes, kSquare, to + o * 2 * kLanes, plane);
    }
  }
}

template <int kLanes, int kKernel>
void join_weight_tiles(const float* points, int64_t inputs, int64_t outputs, int64_t block,
                       int64_t plane, float* w) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  constexpr int64_t kSquare = int64_t{kLanes} * kLanes;
  constexpr int64_t kTaps = kKernel * kKernel;
  const int64_t input_blocks = inputs / kLanes;
  for (int64_t o = 0; o < outputs / kLanes; ++o) {
    const float* from = points + (o / 2 * inputs + block * kLanes) * 2 * kLanes + o % 2 * kLanes;
    float* to = w + (o * input_blocks + block) * kTaps * kSquare;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, from += 2 * kLanes, to += kLanes) {
      Vector half[kKernel][kPoints];
#pragma GCC unroll 16
      for (int c = 0; c < kPoints; ++c) {
        Vector column[6];
        Vector result[kKernel];
#pragma GCC unroll 16
        for (int r = 0; r < 6; ++r) column[r] = Lanes::load(from + (r * 6 + c) * plane);
        from_points<true>(column, result);
#pragma GCC unroll 16
        for (int r = 0; r < kKernel; ++r) half[r][c] = result[r];
      }
#pragma GCC unroll 16
      for (int r = 0; r < kKernel; ++r) {
        Vector result[kKernel];
        from_points<true>(half[r], result);
#pragma GCC unroll 16
        for (int c = 0; c < kKernel; ++c) Lanes::store(to + (r * kKernel + c) * kSquare, result[c]);
      }
    }
  }
}

template <int kLanes, int kKernel>
constexpr TileTransforms make_transforms() {
  return {kKernel,
          tile_of(kKernel),
          cut_tiles<kLanes, kKernel>,
          cut_gradient_tiles<kLanes, kKernel>,
          join_tiles<kLanes, kKernel>,
          cut_weight_tiles<kLanes, kKernel>,
          join_weight_tiles<kLanes, kKernel>,
          cut_turned_weight_tiles<kLanes, kKernel>};
}

template <int kLanes, int kRows>
constexpr TileLoops make_tile_loops() {
  return {kLanes,
          2 * kLanes,
          {make_transforms<kLanes, 3>(), make_transforms<kLanes, 5>()},
          multiply_panels<kLanes, kRows>};
}

}  // namespace
}  // namespace millrace::kernels::tile_code
