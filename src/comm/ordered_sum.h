// Sums in the order of the members, the one that all transports share.
#pragma once

#include <cstdint>
#include <span>

#include "comm/transport.h"

namespace millrace::comm {

// Adds `count` elements of all sources, which lie in memory as their type says, in their order and
// writes the sum to every target. A target
// may be one of the sources. Uses the calling thread's team.
void ordered_sum(std::span<const void* const> sources, std::span<void* const> targets,
                 int64_t count, ElementType type);

// Copies with the calling thread's team; a copy onto itself does nothing.
void parallel_copy(void* target, const void* source, int64_t bytes);

}  // namespace millrace::comm
