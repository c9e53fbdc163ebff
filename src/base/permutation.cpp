#include "base/permutation.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <numeric>

#include "base/word_mix.h"

namespace millrace {

Permutation::Permutation(uint64_t count, uint64_t key) : count_(count) {
  const int bits = count > 1 ? static_cast<int>(std::bit_width(count - 1)) : 1;
  half_bits_ = (bits + 1) / 2;
  for (uint64_t round = 0; round < kRounds; ++round) keys_[round] = mix_words(key, round);
}

// A Feistel network permutes the next power of four; walking along its cycle until the value
// falls below count_ makes that a permutation of [0, count_).
uint64_t Permutation::at(uint64_t position) const {
  assert(position < count_);
  uint64_t value = permute_power_of_four(position);
  while (value >= count_) value = permute_power_of_four(value);
  return value;
}

// All values of a group take a step of their walks before any takes the next: they do not depend on
// each other, and nothing is guessed.
void Permutation::list(uint64_t first, std::span<uint64_t> values) const {
  constexpr size_t kGroup = 64;
  for (size_t begin = 0; begin < values.size(); begin += kGroup) {
    const auto group = values.subspan(begin, std::min(kGroup, values.size() - begin));
    std::array<size_t, kGroup> walking;
    std::iota(walking.begin(), walking.end(), size_t{0});
    std::iota(group.begin(), group.end(), first + begin);
    for (size_t count = group.size(), left = 0; count > 0; count = left) {
      left = 0;
      for (size_t i = 0; i < count; ++i) {
        const size_t place = walking[i];
        group[place] = permute_power_of_four(group[place]);
        walking[left] = place;
        left += group[place] >= count_ ? 1 : 0;
      }
    }
  }
}

uint64_t Permutation::permute_power_of_four(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (const uint64_t key : keys_) {
    const uint64_t next = left ^ (mix_words(key, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace millrace
