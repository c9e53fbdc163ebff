#include "base/random.h"

#include <cmath>

#include "base/philox.h"

namespace millrace {
namespace {

float unit_interval(uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24f; }

}  // namespace

std::array<uint32_t, 4> Random::words(uint64_t counter) const {
  return philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                 static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32));
}

float Random::uniform(uint64_t index) const { return unit_interval(words(index / 4)[index % 4]); }

float Random::normal(uint64_t index) const {
  const auto state = words(index / 2);
  const size_t pair = (index % 2) * 2;
  const double radius = std::sqrt(-2.0 * std::log((state[pair] + 0.5) * 0x1.0p-32));
  const double angle = 2.0 * 3.14159265358979323846 * (state[pair + 1] * 0x1.0p-32);
  return static_cast<float>(radius * std::cos(angle));
}

uint64_t Random::below(uint64_t index, uint64_t bound) const {
  const auto state = words(index / 2);
  const size_t pair = (index % 2) * 2;
  const uint64_t word = (static_cast<uint64_t>(state[pair]) << 32) | state[pair + 1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

uint64_t hash_combine(uint64_t first, uint64_t second) {
  uint64_t mixed =
      first + 0x9E3779B97F4A7C15ull + (second ^ (second >> 30)) * 0xBF58476D1CE4E5B9ull;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
  return mixed ^ (mixed >> 31);
}

uint64_t hash_bytes(const void* data, uint64_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xCBF29CE484222325ull;
  for (uint64_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ull;
  return hash;
}

}  // namespace millrace
