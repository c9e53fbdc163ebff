// The loops of Winograd's methods F(4x4, 3x3) and F(2x2, 5x5), for several instruction sets.
//
// An image is cut into tiles of 4x4 outputs, or 2x2 for kernels of 5x5, each made of 6x6 inputs.
// Both sides are taken to 36 points, where the convolution is 36 independent matrix products over
// the channels, and back. Images have their channels in blocks of `lanes` (aBcd8b), weights too
// (ABcd8b8a). At the points, `planes` floats apart, values lie
//   of left sides   by tile, then channel,
//   of right sides  in panels of `panel` channels; in a panel by depth (tile or channel), then
//   channel.
// Loops run on the calling thread alone and allocate nothing.
#pragma once

#include <cstdint>

#include "kernels/support/ending.h"

namespace millrace::kernels {

inline constexpr int64_t kWinogradPoints = 36;

// A batch of images in tiles: of the images that are cut or put together, in the order of batch,
// rows and columns. The first tile starts `padding` rows and columns before the image.
struct TiledImages {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  int64_t tiles_down = 0;
  int64_t tiles_across = 0;
  int64_t padding = 0;

  int64_t tiles_per_image() const { return tiles_down * tiles_across; }
};

// A piece of `count` tiles that starts at `first`, at the points, `rows` tiles apart where panels
// are.
struct TilePiece {
  int64_t first = 0;
  int64_t count = 0;
  int64_t rows = 0;
  int64_t plane = 0;
};

// Memory that is brought nearer while a product goes on.
struct NextLines {
  const float* first = nullptr;
  int64_t floats = 0;
};

// c = a b, or c += a b: `rows` times `depth` times all columns of `panels` panels.
struct PanelProduct {
  const float* a;
  int64_t row;   // floats from a row of `a` to the next
  int64_t step;  // floats from a column of `a` to the next
  int64_t rows;
  int64_t depth;
  const float* b;
  int64_t b_panel;  // floats from a panel to the next
  int64_t panels;
  float* c;
  int64_t c_panel;
  bool add;
  // What the product behind this one reads and writes, of `b` the first panel.
  NextLines next_a = {};
  NextLines next_b = {};
  NextLines next_c = {};
};

// What depends on the size of the kernel.
struct TileTransforms {
  int64_t kernel;
  int64_t tile;  // outputs in a row of one

  // Inputs to the points, as left sides.
  void (*cut)(const float* x, const TiledImages& images, const TilePiece& piece, float* points);
  // Gradients of outputs to the points, as right sides; adds their sums over pixels to `sums`, if
  // that is not null.
  void (*cut_gradient)(const float* dy, const TiledImages& images, const TilePiece& piece,
                       float* points, float* sums);
  // Products, which lie as right sides do, to outputs. A residual lies as these do.
  void (*join)(const float* points, const TiledImages& images, const TilePiece& piece,
               const Ending& ending, float* y);
  // A block of `lanes` inputs of all outputs: weights to the points as right sides, of depth
  // `inputs`; and products back to gradients of weights.
  void (*cut_weights)(const float* w, int64_t inputs, int64_t outputs, int64_t block, int64_t plane,
                      float* points);
  void (*join_weights)(const float* points, int64_t inputs, int64_t outputs, int64_t block,
                       int64_t plane, float* w);
  // A block of `lanes` outputs of all inputs: turned by half a circle, as right sides of depth
  // `outputs`, for the gradient of inputs.
  void (*cut_turned_weights)(const float* w, int64_t inputs, int64_t outputs, int64_t block,
                             int64_t plane, float* points);
};

struct TileLoops {
  int64_t lanes;
  int64_t panel;
  TileTransforms transforms[2];

  // Null where there are none for kernels of this size.
  const TileTransforms* transforms_of(int64_t kernel) const {
    for (const TileTransforms& each : transforms) {
      if (each.kernel == kernel) return &each;
    }
    return nullptr;
  }

  void (*multiply)(const PanelProduct& product);
};

const TileLoops& tile_loops_avx2();
const TileLoops& tile_loops_avx512();

}  // namespace millrace::kernels
