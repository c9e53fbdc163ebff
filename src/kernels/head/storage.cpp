#include "kernels/head/storage.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "base/philox.h"
#include "base/random.h"
#include "kernels/support/vectorize.h"

namespace millrace {
namespace {

constexpr int64_t kCounters = 16;
constexpr int64_t kChunk = 8 * kCounters;  // elements that get their 16 bits together
constexpr uint64_t kRoundingStream = 0x726F756E64;

MILLRACE_INLINE float from_bf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

MILLRACE_INLINE float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
  const float finite = std::bit_cast<float>(magnitude) * 0x1.0p112f;
  const bool special = magnitude >= 0x0F800000u;
  const uint32_t value = special ? magnitude | 0x7F800000u : std::bit_cast<uint32_t>(finite);
  return std::bit_cast<float>(value | sign);
}

// Adds `random` below the last bit that stays, and cuts off there.
MILLRACE_INLINE uint16_t round_to_bf16(float value, uint16_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
  const uint32_t kept = finite ? bits + random : bits | ((bits & 0x007FFFFFu) != 0 ? 0x10000u : 0u);
  return static_cast<uint16_t>(kept >> 16);
}

MILLRACE_INLINE uint16_t round_to_f16(float value, uint16_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Normal numbers lose 13 bits; below 2^-14 the spacing is 2^-24.
  const uint32_t normal = (magnitude + (random >> 3) - 0x38000000u) >> 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1.0p24f;
  const float small = scaled < 1024.0f ? scaled : 1024.0f;
  const auto subnormal =
      static_cast<uint32_t>(static_cast<int32_t>(small + static_cast<float>(random) * 0x1.0p-16f));
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477FE000u ? 0x7BFFu : result;  // 65504, the largest
  result = magnitude >= 0x7F800000u ? (magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u) : result;
  return static_cast<uint16_t>(result | sign);
}

// 16 random bits for each of kChunk elements.
MILLRACE_INLINE void random_bits(const RoundingKey& key, uint32_t chunk, uint16_t* bits) {
  const auto key0 = static_cast<uint32_t>(key.step);
  const auto key1 = static_cast<uint32_t>(key.step >> 32);
  const auto row = static_cast<uint32_t>(key.row);
  const auto more = static_cast<uint32_t>(key.row >> 32) ^ key.tensor << 24;
  uint32_t words[4][kCounters];
#pragma GCC ivdep
  for (uint32_t i = 0; i < kCounters; ++i) {
    const auto state = philox({chunk * static_cast<uint32_t>(kCounters) + i, row, more,
                               static_cast<uint32_t>(kRoundingStream)},
                              key0, key1);
    words[0][i] = state[0];
    words[1][i] = state[1];
    words[2][i] = state[2];
    words[3][i] = state[3];
  }
  std::memcpy(bits, words, sizeof(words));
}

MILLRACE_VECTORIZED void store_bf16(const float* values, int64_t count, const RoundingKey& key,
                                    uint16_t* out) {
  uint16_t bits[kChunk];
  for (int64_t first = 0; first < count; first += kChunk) {
    random_bits(key, static_cast<uint32_t>(first / kChunk), bits);
    const int64_t part = std::min(kChunk, count - first);
#pragma GCC ivdep
    for (int64_t i = 0; i < part; ++i) out[first + i] = round_to_bf16(values[first + i], bits[i]);
  }
}

MILLRACE_VECTORIZED void store_f16(const float* values, int64_t count, const RoundingKey& key,
                                   uint16_t* out) {
  uint16_t bits[kChunk];
  for (int64_t first = 0; first < count; first += kChunk) {
    random_bits(key, static_cast<uint32_t>(first / kChunk), bits);
    const int64_t part = std::min(kChunk, count - first);
#pragma GCC ivdep
    for (int64_t i = 0; i < part; ++i) out[first + i] = round_to_f16(values[first + i], bits[i]);
  }
}

MILLRACE_VECTORIZED void load_bf16(const uint16_t* row, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_bf16(row[i]);
}

MILLRACE_VECTORIZED void load_f16(const uint16_t* row, int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) values[i] = from_f16(row[i]);
}

MILLRACE_VECTORIZED void nearest_bf16(const float* values, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    out[i] = static_cast<uint16_t>((is_nan ? bits | 0x10000u : rounded) >> 16);
  }
}

MILLRACE_VECTORIZED float squares(const float* values, int64_t count) {
  FloatLanes sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * kFloatLanes <= count; i += 4 * kFloatLanes) {
    for (int64_t j = 0; j < 4; ++j) {
      FloatLanes lanes;
      load_lanes(values + i + j * kFloatLanes, lanes);
      sums[j] += lanes * lanes;
    }
  }
  double sum = sum_of_lanes(sums[0] + sums[1] + (sums[2] + sums[3]));
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * values[i];
  return static_cast<float>(sum);
}

}  // namespace

RoundingKey rounding_key(uint64_t seed, int64_t step, int64_t row, uint32_t tensor) {
  const uint64_t hash =
      hash_combine(hash_combine(seed, kRoundingStream), static_cast<uint64_t>(step));
  return {hash, static_cast<uint64_t>(row), tensor};
}

void load_row(DataType type, const std::byte* row, int64_t count, float* values) {
  switch (type) {
    case DataType::f32:
      std::memcpy(values, row, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::bf16:
      return load_bf16(reinterpret_cast<const uint16_t*>(row), count, values);
    case DataType::f16:
      return load_f16(reinterpret_cast<const uint16_t*>(row), count, values);
    default:
      throw std::logic_error("a row of centres is f32, bf16 or f16");
  }
}

void store_row(DataType type, const float* values, int64_t count, const RoundingKey& key,
               std::byte* row) {
  switch (type) {
    case DataType::f32:
      std::memcpy(row, values, static_cast<size_t>(count) * sizeof(float));
      return;
    case DataType::bf16:
      return store_bf16(values, count, key, reinterpret_cast<uint16_t*>(row));
    case DataType::f16:
      return store_f16(values, count, key, reinterpret_cast<uint16_t*>(row));
    default:
      throw std::logic_error("a row of centres is f32, bf16 or f16");
  }
}

void to_bf16(const float* values, int64_t count, uint16_t* out) {
  nearest_bf16(values, count, out);
}

float sum_of_squares(const float* values, int64_t count) { return squares(values, count); }

}  // namespace millrace
