// How a device's arena is divided.
#pragma once

#include <cstdint>

#include "kernels/kernel.h"

namespace millrace::compile {

// state: what lives across steps, once. weights: the parameters, once per version. saved: what a
// micro-batch keeps between its phases, once per micro-batch in flight. scratch: what lives within
// one phase. channels: what is on its way to and from other stages.
enum class ArenaRegion : uint8_t { state, weights, saved, scratch, channels };

struct Address {
  ArenaRegion region = ArenaRegion::scratch;
  int64_t offset = 0;
  kernels::Extent extent = {};

  // Whether it is the same place.
  bool operator==(const Address& other) const {
    return region == other.region && offset == other.offset;
  }
};

// The arena is [state | weights x versions | saved x slots | scratch | channels]. Plain data.
struct MemoryMap {
  int64_t state = 0;  // bytes of one
  int64_t weights = 0;
  int64_t saved = 0;
  int64_t scratch = 0;
  int64_t channels = 0;
  int versions = 1;
  int slots = 1;

  int64_t persistent() const { return state + weights * versions; }
  int64_t channels_begin() const { return persistent() + saved * slots + scratch; }
  int64_t total() const { return channels_begin() + channels; }

  // Where copy `index` of a region begins.
  int64_t begin(ArenaRegion region, int index = 0) const {
    switch (region) {
      case ArenaRegion::state:
        return 0;
      case ArenaRegion::weights:
        return state + weights * index;
      case ArenaRegion::saved:
        return persistent() + saved * index;
      case ArenaRegion::scratch:
        return persistent() + saved * slots;
      case ArenaRegion::channels:
        return channels_begin();
    }
    return 0;
  }
};

}  // namespace millrace::compile
