// Two words mixed into one.
#pragma once

#include <cstdint>

namespace millrace {

inline uint64_t mix_words(uint64_t first, uint64_t second) {
  uint64_t mixed =
      first + 0x9E3779B97F4A7C15ull + (second ^ (second >> 30)) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
  return mixed ^ (mixed >> 31);
}

}  // namespace millrace
