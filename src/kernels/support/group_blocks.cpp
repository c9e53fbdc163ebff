#include "kernels/support/group_blocks.h"

#include <algorithm>

namespace millrace::kernels {
namespace {

constexpr int64_t kBlock = 16;

// Where the weights of an output channel start within its row of the wide group.
int64_t first_in_row(const GroupBlocks& blocks, int64_t channel) {
  return channel % blocks.wide / blocks.narrow * blocks.narrow * blocks.area;
}

}  // namespace

int64_t widened_group(int64_t channels, int64_t group_in, int64_t group_out) {
  const bool between = group_in == group_out && group_in > 1 && group_in < kBlock;
  if (!between || kBlock % group_in != 0 || channels % kBlock != 0) return 0;
  return channels > kBlock ? kBlock : 0;
}

void widen(const GroupBlocks& blocks, const float* weights, float* wide_weights) {
  std::fill_n(wide_weights, blocks.wide_values(), 0.0f);
  const int64_t run = blocks.narrow * blocks.area;
  for (int64_t channel = 0; channel < blocks.channels; ++channel) {
    std::copy_n(weights + channel * run, run,
                wide_weights + channel * blocks.wide * blocks.area + first_in_row(blocks, channel));
  }
}

void narrow(const GroupBlocks& blocks, const float* wide_weights, float* weights) {
  const int64_t run = blocks.narrow * blocks.area;
  for (int64_t channel = 0; channel < blocks.channels; ++channel) {
    std::copy_n(wide_weights + channel * blocks.wide * blocks.area + first_in_row(blocks, channel),
                run, weights + channel * run);
  }
}

}  // namespace millrace::kernels
