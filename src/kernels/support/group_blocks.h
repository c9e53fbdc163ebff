// Weights of small groups as blocks on the diagonal of larger groups.
//
// oneDNN has fast code for groups of at least a block of channels, and for groups of one channel;
// for what lies between, several groups are computed as one whose other weights are zero.
#pragma once

#include <cstdint>

namespace millrace::kernels {

// A group that takes the place of several: `wide` channels in and out instead of `narrow`.
struct GroupBlocks {
  int64_t channels = 0;  // in all
  int64_t narrow = 0;    // divides wide
  int64_t wide = 0;      // divides channels
  int64_t area = 0;      // values of a kernel

  int64_t wide_values() const { return channels * wide * area; }
};

// Whether groups of this size are better widened, and to what; 0 if not.
int64_t widened_group(int64_t channels, int64_t group_in, int64_t group_out);

// (channels, narrow, area) to (channels, wide, area), zero outside the groups, and back.
void widen(const GroupBlocks& blocks, const float* weights, float* wide_weights);
void narrow(const GroupBlocks& blocks, const float* wide_weights, float* weights);

}  // namespace millrace::kernels
