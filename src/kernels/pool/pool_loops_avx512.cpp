#include "kernels/pool/pool_code.h"

namespace millrace::kernels {

const PoolLoops& pool_loops_avx512() {
  static constexpr PoolLoops kLoops = pool_code::make_pool_loops<16>();
  return kLoops;
}

}  // namespace millrace::kernels
