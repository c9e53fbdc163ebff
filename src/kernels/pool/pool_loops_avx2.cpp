#include "kernels/pool/pool_code.h"

namespace millrace::kernels {

const PoolLoops& pool_loops_avx2() {
  static constexpr PoolLoops kLoops = pool_code::make_pool_loops<8>();
  return kLoops;
}

}  // namespace millrace::kernels
