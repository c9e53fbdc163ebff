// The loops of depthwise convolutions, for several instruction sets.
//
// Images have their channels in blocks of `lanes` (aBcd8b), so a block of an image is a plane of
// columns of `lanes` floats each. A kernel has as many floats at each of its taps. Both gradients
// are made of the same rows: that of inputs is a convolution with the taps in the other order, for
// strides one for each remainder.
// Small groups of channels that lie in one block share it: each channel also has weights for the
// others of its group. Channel c and member m stand for the input c xor m, which is again one of
// the group as its size is a power of two. Loops run on the calling thread alone and allocate
// nothing.
#pragma once

#include <cstdint>

namespace millrace::kernels {

inline constexpr int64_t kMostTaps = 7;        // in a row of a kernel
inline constexpr int64_t kMostTapStrides = 2;  // columns of inputs from an output to the next
inline constexpr int64_t kMostMembers = 4;     // of a group
inline constexpr int64_t kMostTapsOfGroups = 3;

// A row of outputs and the rows of inputs that its taps see.
struct TapRows {
  const float* x;  // the first row of inputs, from its column 0 on
  int64_t x_row;   // floats from a row of inputs to the next
  int64_t width;   // columns of the inputs; those beyond count as zero
  int64_t rows;    // of inputs and of taps; 0: outputs are zero
  int64_t taps;    // in a row, 1 to kMostTaps
  int64_t left;    // the column that the first tap of the first output sees
  int64_t stride;  // 1 to kMostTapStrides
  int64_t count;   // outputs
};

struct DepthwiseLoops {
  int64_t lanes;

  // Outputs are `step` floats apart. `bias` may be null. Each tap has weights for all members.
  void (*convolve)(const TapRows& rows, int64_t members, const float* weights, const float* bias,
                   bool relu, float* y, int64_t step);
  // Adds the products of inputs and gradients of outputs, which follow each other, to the sums of
  // the taps; the inputs are those of one member.
  void (*correlate)(const TapRows& rows, int64_t member, const float* dy, float* sums);
};

const DepthwiseLoops& depthwise_loops_avx2();
const DepthwiseLoops& depthwise_loops_avx512();

}  // namespace millrace::kernels
