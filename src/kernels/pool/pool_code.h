// The code behind PoolLoops, for vectors of any length; each file that includes it is compiled for
// one instruction set. Nothing here may call or instantiate what other files share.
#pragma once

#include "kernels/pool/pool_loops.h"
#include "kernels/support/float_vector.h"

namespace millrace::kernels::pool_code {
namespace {

template <int kLanes>
struct Places {
  using Type __attribute__((vector_size(kLanes * 4))) = int32_t;
};

MILLRACE_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <int kLanes>
void pool_plane(const PoolGeometry& g, const float* x, float* y, uint8_t* positions) {
  using Lanes = FloatVector<kLanes>;
  using Vector = typename Lanes::Type;
  using Place = typename Places<kLanes>::Type;
  const Vector lowest = Vector{} - __builtin_inff();
  const Vector floor = g.relu ? Vector{} : lowest;
  for (int64_t down = 0; down < g.out_height; ++down) {
    const int64_t top = down * g.stride_height - g.pad_height;
    const int64_t first_row = top < 0 ? -top : 0;
    const int64_t last_row = smaller(g.kernel_height, g.height - top);
    for (int64_t across = 0; across < g.out_width; ++across) {
      const int64_t left = across * g.stride_width - g.pad_width;
      const int64_t first = left < 0 ? -left : 0;
      const int64_t last = smaller(g.kernel_width, g.width - left);
      Vector best = lowest;
      Place where = Place{} + static_cast<int32_t>(first_row * g.kernel_width + first);
      for (int64_t row = first_row; row < last_row; ++row) {
        const float* from = x + ((top + row) * g.width + left) * kLanes;
        for (int64_t column = first; column < last; ++column) {
          const Vector value = Lanes::load(from + column * kLanes);
          const Place place = Place{} + static_cast<int32_t>(row * g.kernel_width + column);
          where = value > best ? place : where;
          best = value > best ? value : best;
          where = value == value ? where : place;
          best = value == value ? best : value;
        }
      }
      const int64_t at = (down * g.out_width + across) * kLanes;
      Lanes::store(y + at, best < floor ? floor : best);
      for (int lane = 0; lane < kLanes; ++lane) {
        positions[at + lane] = static_cast<uint8_t>(where[lane]);
      }
    }
  }
}

template <int kLanes>
void pool_planes(const PoolGeometry& g, int64_t begin, int64_t end, const float* x, float* y,
                 uint8_t* positions) {
  const int64_t inputs = g.height * g.width * kLanes;
  const int64_t outputs = g.out_height * g.out_width * kLanes;
  for (int64_t i = begin; i < end; ++i) {
    pool_plane<kLanes>(g, x + i * inputs, y + i * outputs, positions + i * outputs);
  }
}

template <int kLanes>
constexpr PoolLoops make_pool_loops() {
  return {kLanes, pool_planes<kLanes>};
}

}  // namespace
}  // namespace millrace::kernels::pool_code
