#include "kernels/depthwise/row_code.h"

namespace millrace::kernels {

const DepthwiseLoops& depthwise_loops_avx2() {
  static constexpr DepthwiseLoops kLoops = row_code::make_depthwise_loops<8, 12>();
  return kLoops;
}

}  // namespace millrace::kernels
