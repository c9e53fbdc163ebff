#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/philox.h"
#include "base/vectorize.h"
#include "base/word_mix.h"

namespace millrace {
namespace {

constexpr uint64_t kBlock = 64;  // counters, of two normal numbers each

// Natural logarithm of a normal number, to about 1e-15.
MILLRACE_INLINE double log_of(double value) {
  constexpr double kHalfRoot = 0.70710678118654752440, kLog2 = 0.69314718055994530942;
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1, kHalf = uint64_t{1022} << 52;
  constexpr uint64_t kInteger = uint64_t{0x433} << 52;  // 2^52, and so 2^52 + n for its low bits n
  const auto bits = std::bit_cast<uint64_t>(value);
  double mantissa = std::bit_cast<double>((bits & kMantissa) | kHalf);  // in [1/2, 1)
  double exponent = std::bit_cast<double>(kInteger | (bits >> 52)) - (0x1.0p52 + 1022);
  const bool small = mantissa < kHalfRoot;
  mantissa = small ? mantissa * 2 : mantissa;
  exponent = small ? exponent - 1 : exponent;
  const double ratio = (mantissa - 1) / (mantissa + 1);
  const double square = ratio * ratio;
  double series = 1.0 / 19;
  for (const double divisor : {17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0}) {
    series = series * square + 1 / divisor;
  }
  return exponent * kLog2 + 2 * ratio * series;
}

// cos(2π · turns) for turns in [0, 1), to about 1e-15: a sine of at most a quarter turn.
MILLRACE_INLINE double cos_of_turns(double turns) {
  constexpr double kTwoPi = 6.28318530717958647692;
  const double angle = kTwoPi * (std::fabs(turns - 0.5) - 0.25);
  const double square = angle * angle;
  double series = 1;
  for (const double divisor : {18.0 * 19, 16.0 * 17, 14.0 * 15, 12.0 * 13, 10.0 * 11, 8.0 * 9,
                               6.0 * 7, 4.0 * 5, 2.0 * 3}) {
    series = 1 - series * square * (1 / divisor);
  }
  return angle * series;
}

// Box and Muller's transform of two words.
MILLRACE_INLINE float normal_of(uint32_t first, uint32_t second) {
  const double radius = std::sqrt(-2 * log_of((first + 0.5) * 0x1.0p-32));
  return static_cast<float>(radius * cos_of_turns(second * 0x1.0p-32));
}

// Both numbers of each of kBlock counters from `counter` on.
MILLRACE_VECTORIZED void normal_block(uint64_t seed, uint64_t stream, uint64_t counter,
                                      float* values) {
  for (uint64_t i = 0; i < kBlock; ++i) {
    const uint64_t place = counter + i;
    const auto words = philox({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                              static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    values[2 * i] = normal_of(words[0], words[1]);
    values[2 * i + 1] = normal_of(words[2], words[3]);
  }
}

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
  return normal_of(state[pair], state[pair + 1]);
}

void Random::normals(uint64_t first, std::span<float> values) const {
  std::array<float, 2 * kBlock> block;
  for (size_t done = 0; done < values.size();) {
    const uint64_t index = first + done;
    const size_t skipped = index % 2;
    const size_t count = std::min(values.size() - done, block.size() - skipped);
    const bool whole = skipped == 0 && count == block.size();
    float* target = whole ? values.data() + done : block.data();
    normal_block(seed_, stream_, index / 2, target);
    if (!whole) std::copy_n(block.data() + skipped, count, values.data() + done);
    done += count;
  }
}

uint64_t Random::below(uint64_t index, uint64_t bound) const {
  const auto state = words(index / 2);
  const size_t pair = (index % 2) * 2;
  const uint64_t word = (static_cast<uint64_t>(state[pair]) << 32) | state[pair + 1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

uint64_t hash_combine(uint64_t first, uint64_t second) { return mix_words(first, second); }

uint64_t hash_bytes(const void* data, uint64_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  uint64_t hash = 0xCBF29CE484222325ull;
  for (uint64_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001B3ull;
  return hash;
}

}  // namespace millrace
