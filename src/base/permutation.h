// A permutation of [0, count) that is a function of a key alone and needs no memory: any thread
// can ask for any position, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace millrace {

class Permutation {
 public:
  Permutation(uint64_t count, uint64_t key);

  // The value at this position; position < count.
  uint64_t at(uint64_t position) const;

  // The values at `first` and the positions behind it: the same, in much less time for each.
  void list(uint64_t first, std::span<uint64_t> values) const;

 private:
  static constexpr uint64_t kRounds = 8;

  uint64_t permute_power_of_four(uint64_t value) const;

  uint64_t count_;
  int half_bits_ = 1;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace millrace
