#include "base/permutation.h"

#include <bit>
#include <cassert>

#include "base/random.h"

namespace millrace {

Permutation::Permutation(uint64_t count, uint64_t key) : count_(count) {
  const int bits = count > 1 ? static_cast<int>(std::bit_width(count - 1)) : 1;
  half_bits_ = (bits + 1) / 2;
  for (uint64_t round = 0; round < kRounds; ++round) keys_[round] = hash_combine(key, round);
}

// A Feistel network permutes the next power of four; walking along its cycle until the value
// falls below count_ makes that a permutation of [0, count_).
uint64_t Permutation::at(uint64_t position) const {
  assert(position < count_);
  uint64_t value = permute_power_of_four(position);
  while (value >= count_) value = permute_power_of_four(value);
  return value;
}

uint64_t Permutation::permute_power_of_four(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (hash_combine(key, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace millrace
