#include "kernels/winograd/tile_code.h"

namespace millrace::kernels {

const TileLoops& tile_loops_avx2() {
  static constexpr TileLoops kLoops = tile_code::make_tile_loops<8, 6>();
  return kLoops;
}

}  // namespace millrace::kernels
