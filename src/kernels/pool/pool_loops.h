// The loops of max pools over channels in blocks of `lanes` (aBcd8b), for several instruction sets.
// Loops run on the calling thread alone and allocate nothing.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// Windows over planes: an image and a block of channels each.
struct PoolGeometry {
  int64_t planes;
  int64_t block;
  int64_t height, width;          // of the input
  int64_t out_height, out_width;  // of the output
  int64_t kernel_height, kernel_width;
  int64_t stride_height, stride_width;
  int64_t pad_height, pad_width;
  bool relu;

  int64_t input_values() const { return height * width * block; }
  int64_t output_values() const { return out_height * out_width * block; }
};

struct PoolLoops {
  int64_t lanes;

  // Planes `begin` to `end`, and where in its window each largest value was. Nothing is larger than
  // what is no number.
  void (*pool)(const PoolGeometry& geometry, int64_t begin, int64_t end, const float* x, float* y,
               uint8_t* positions);
};

const PoolLoops& pool_loops_avx2();
const PoolLoops& pool_loops_avx512();

}  // namespace millrace::kernels
