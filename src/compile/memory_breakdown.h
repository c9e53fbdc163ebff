#pragma once

#include <cstdint>

namespace millrace::compile {

// Bytes by purpose at the moment of the peak; they add up to the arena. Gaps between buffers
// and alignment count as workspace.
struct MemoryBreakdown {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t workspace = 0;
  int64_t communication = 0;

  int64_t total() const {
    return weights + gradients + optimizer + activations + workspace + communication;
  }
};

}  // namespace millrace::compile
