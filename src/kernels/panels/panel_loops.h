// The loops of convolutions as matrix products, for several instruction sets.
//
// Images have their channels in blocks of `lanes` (aBcd8b), weights too (ABcd8b8a). So images are
// matrices as they lie: a block of channels of an image is a plane of pixels, each of `lanes`
// values, and a tap of the kernel between two blocks is a square of weights, `lanes` rows of inputs
// with `lanes` outputs each. With more than one tap, or with strides, the planes that a piece of
// pixels sees are gathered first, and taps count as further blocks of inputs.
// Loops run on the calling thread alone and allocate nothing.
#pragma once

#include <cstdint>

#include "kernels/support/ending.h"

namespace millrace::kernels {

// Planes of pixels times squares of weights: planes of outputs, as many as there are columns.
struct PixelProduct {
  const float* a;
  int64_t a_plane;  // floats from a plane to the next
  int64_t pixels;
  int64_t depth;  // planes of `a`
  const float* b;
  int64_t b_column;  // floats from the squares of an output plane to those of the next
  int64_t columns;
  float* c;
  int64_t c_plane;
  bool add;
  // Planes, as far apart as those of `a`, of which as many pixels are brought nearer meanwhile.
  const float* next;
  int64_t next_planes;
  // Null where more is added later. A residual lies as `c` does.
  const Ending* ending;
};

// A plane that is brought nearer while a product goes on, as many pixels of as many images.
struct NextPlane {
  const float* pixels;
  int64_t image;  // floats from an image to the next
};

// A plane of inputs times planes of outputs' gradients, summed over pixels: squares.
struct SquareProduct {
  const float* a;
  int64_t a_image;  // floats from an image to the next
  const float* b;
  int64_t b_plane;
  int64_t b_image;
  int64_t columns;  // planes of `b`
  int64_t pixels;   // of an image
  int64_t images;
  float* c;
  int64_t c_column;
  bool add;
  NextPlane next[2];
};

// A grid of pixels, `across` in a row, in a plane of height x width: where its first pixel lies,
// and how far its pixels are apart.
struct PixelGrid {
  int64_t height = 0;
  int64_t width = 0;
  int64_t across = 0;
  int64_t stride = 1;
  int64_t top = 0;
  int64_t left = 0;
};

struct PanelLoops {
  int64_t lanes;
  int64_t columns;  // that a product has at most

  void (*multiply_pixels)(const PixelProduct& product);
  void (*multiply_squares)(const SquareProduct& product);
  // `count` pixels of a grid, from `first` on: out of a plane, zero where the grid reaches over its
  // edge, and back into one, which has them all.
  void (*gather)(const float* plane, const PixelGrid& grid, int64_t first, int64_t count,
                 float* pixels);
  void (*scatter)(const float* pixels, const PixelGrid& grid, int64_t first, int64_t count,
                  float* plane);
  // A square with rows and columns exchanged.
  void (*turn)(const float* square, float* turned);
};

const PanelLoops& panel_loops_avx2();
const PanelLoops& panel_loops_avx512();

}  // namespace millrace::kernels
