// How the loops of Winograd's methods walk through the tiles of images, and see them; for vectors
// of any length, included by tile_code.h alone.
#pragma once

#include "kernels/support/float_vector.h"
#include "kernels/winograd/product_code.h"
#include "kernels/winograd/tile_loops.h"

namespace millrace::kernels::tile_code {
namespace {

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

// The block of channels of the image that a tile lies in.
template <int kLanes, typename Float>
MILLRACE_INLINE Float* plane_of(Float* x, const TiledImages& images, int64_t block,
                                const TilePlace& place) {
  const int64_t blocks = images.channels / kLanes;
  return x + (place.image * blocks + block) * images.height * images.width * kLanes;
}

constexpr int64_t kTilesAhead = 4;

// Brings the kSize x kSize values of a tile nearer, but for the columns that the tile before has,
// too. Rows lie so far apart that no processor foresees them.
template <int kLanes, int kSize, int kTile, bool kWritten>
MILLRACE_INLINE void bring_tile(const float* plane, const TiledImages& images,
                                const TilePlace& place) {
  const int64_t top = place.down * kTile - images.padding;
  const int64_t left = place.across * kTile - images.padding + kSize - kTile;
#pragma GCC unroll 16
  for (int r = 0; r < kSize; ++r) {
    const float* row = plane + ((top + r) * images.width + left) * kLanes;
#pragma GCC unroll 16
    for (int line = 0; line < kTile * kLanes; line += kLine) {
      __builtin_prefetch(row + line, kWritten ? 1 : 0, 3);
    }
  }
}

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

}  // namespace
}  // namespace millrace::kernels::tile_code
