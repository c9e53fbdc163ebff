// The Philox 4x32-10 function itself (Salmon et al., SC'11), for loops that want it inline;
// everyone else uses base/random.h.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

// Ten rounds over one 128-bit counter with a 64-bit key.
inline __attribute__((always_inline)) std::array<uint32_t, 4> philox(std::array<uint32_t, 4> state,
                                                                     uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * state[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * state[2];
    state = {
        static_cast<uint32_t>(product1 >> 32) ^ state[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ state[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return state;
}

}  // namespace millrace
