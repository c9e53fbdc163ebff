// What convolutions by products of matrices go over: planes of images in blocks of channels, the
// taps of a kernel that pixels see, and pieces of pixels that fit a cache.
#pragma once

#include <vector>

#include "kernels/convolution_problem.h"
#include "kernels/panels/panel_loops.h"

namespace millrace::kernels::panels {

inline int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Of `left` columns, so that all products have about equally many.
int64_t next_columns(int64_t left, const PanelLoops& loops);

// Images in blocks: `blocks` planes each.
struct Blocked {
  int64_t images;
  int64_t blocks;
  int64_t height;
  int64_t width;
  int64_t lanes;

  Blocked(const graph::Shape& shape, int64_t block)
      : images(shape[0]),
        blocks(shape[1] / block),
        height(shape[2]),
        width(shape[3]),
        lanes(block) {}

  int64_t plane() const { return height * width * lanes; }
  int64_t offset(int64_t image, int64_t block) const { return (image * blocks + block) * plane(); }
};

// Where a tap of the kernel reads, for the pixels of a grid.
struct Tap {
  int64_t index;  // in the kernel
  int64_t top;
  int64_t left;
};

// Pixels of what is made that see the same taps: all, or for gradients of inputs with a stride
// those that leave the same remainders.
struct Phase {
  std::vector<Tap> taps;
  int64_t down = 0;
  PixelGrid target;  // in what is made
  int64_t source_stride = 1;
  int64_t weights = 0;  // where those of its taps begin, in squares

  int64_t pixels() const { return down * target.across; }
};

// Pixels first .. first + count of each of `images` images.
struct Piece {
  int64_t image;
  int64_t images;
  int64_t first;
  int64_t count;

  int64_t pixels() const { return images * count; }
};

// Of images `begin` to `end`, about `most` pixels each. Small images go several at a time, large
// ones in parts.
std::vector<Piece> pieces_of(int64_t begin, int64_t end, int64_t pixels, int64_t most);
int64_t largest_of(const std::vector<Piece>& pieces);

Phase forward_phase(const ConvolutionProblem& problem);
std::vector<Phase> data_phases(const ConvolutionProblem& problem);

// Whether the pixels of a phase lie in the source as they are wanted.
bool lies_ready(const Phase& phase, const Blocked& source);

// Planes first .. last of what the piece sees; a plane is a tap of a block of channels.
void gather_planes(const PanelLoops& loops, const float* images, const Blocked& source,
                   const Phase& phase, const Piece& piece, int64_t first, int64_t last,
                   float* pixels);

}  // namespace millrace::kernels::panels
