// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC'11).
//
// A number is a pure function of (seed, stream, counter): nothing is carried from call to call,
// so any thread can produce any part of a sequence and a resumed run continues exactly.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace {

class Random {
 public:
  // `stream` separates independent uses of one seed (an operator, a loader, an epoch).
  Random(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // Four independent 32-bit words for this counter.
  std::array<uint32_t, 4> words(uint64_t counter) const;

  // Uniform in [0, 1) with 24 bits; element `index` of the sequence.
  float uniform(uint64_t index) const;

  // Standard normal (Box-Muller); element `index` of the sequence.
  float normal(uint64_t index) const;

  // Elements `first`, `first` + 1, ... of that sequence, many times faster.
  void normals(uint64_t first, std::span<float> values) const;

  // Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
  uint64_t below(uint64_t index, uint64_t bound) const;

 private:
  uint64_t seed_;
  uint64_t stream_;
};

// Mixes two words into one; used to derive stream numbers from names and indices.
uint64_t hash_combine(uint64_t first, uint64_t second);

// A stable 64-bit hash of bytes (FNV-1a), the same on every machine.
uint64_t hash_bytes(const void* data, uint64_t size);

}  // namespace millrace
