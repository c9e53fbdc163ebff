#include "kernels/winograd/tile_code.h"

namespace millrace::kernels {

const TileLoops& tile_loops_avx512() {
  static constexpr TileLoops kLoops = tile_code::make_tile_loops<16, 12>();
  return kLoops;
}

}  // namespace millrace::kernels
