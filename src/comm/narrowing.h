// Floats that travel in 16 bits: conversions and sums that all transports share.
#pragma once

#include <cstdint>
#include <span>

#include "comm/transport.h"

namespace millrace::comm {

// Whether elements of this type travel in 16 bits.
bool is_narrowed(ElementType type);

// Rounds floats to 16 bits. The arrays must not overlap.
void narrow(ElementType type, const float* values, int64_t count, void* narrowed);

// Turns 16-bit numbers, at the beginning of where the floats shall be, into those floats.
void widen_in_place(ElementType type, void* data, int64_t count);

// Which operands of a sum lie there in 16 bits; the others as floats.
struct NarrowedOperands {
  static constexpr int kEvery = -1;
  int wide_source = kEvery;     // the only one that is wide, or every
  bool narrow_targets = false;  // the sum is left in 16 bits
};

// Rounds `count` elements of all sources, adds them in their order, rounds the sum and writes it to
// every target. A target may be one of the sources, and a narrow one may begin where a wide source
// begins. Uses the calling thread's team, unless the targets are narrow.
void ordered_narrowed_sum(std::span<const void* const> sources, std::span<void* const> targets,
                          int64_t count, ElementType type, const NarrowedOperands& operands = {});

}  // namespace millrace::comm
