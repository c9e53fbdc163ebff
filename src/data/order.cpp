#include "data/order.h"

#include <bit>
#include <cassert>

#include "base/random.h"

namespace millrace {
namespace {

constexpr uint64_t kRounds = 8;
constexpr uint64_t kOrderStream = 0x6F72646572;

}  // namespace

ShuffledOrder::ShuffledOrder(uint64_t count, uint64_t seed, uint64_t epoch)
    : count_(count), key_(hash_combine(hash_combine(seed, kOrderStream), epoch)) {
  const int bits = count > 1 ? static_cast<int>(std::bit_width(count - 1)) : 1;
  half_bits_ = (bits + 1) / 2;
}

// A Feistel network permutes the next power of four; walking along its cycle until the value
// falls below count_ makes that a permutation of [0, count_).
uint64_t ShuffledOrder::at(uint64_t position) const {
  assert(position < count_);
  uint64_t value = permute_power_of_two(position);
  while (value >= count_) value = permute_power_of_two(value);
  return value;
}

uint64_t ShuffledOrder::permute_power_of_two(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = hash_combine(hash_combine(key_, round), right);
    const uint64_t next = left ^ (mixed & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace millrace
