#include "kernels/head/storage.h"

#include <bit>
#include <cstring>
#include <stdexcept>

#include "base/half.h"
#include "base/philox.h"
#include "base/random.h"
#include "kernels/support/conversion.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

constexpr uint32_t kRoundingStream = 0x726F756E;

// A random word for each column from the two words of a row: a multiplicative mix of the column's
// place in a sequence that the row starts and strides through.
struct RowRandom {
  uint32_t start;
  uint32_t stride;

  MILLRACE_INLINE uint32_t word(uint32_t column) const {
    uint32_t mixed = start + column * stride;
    mixed = (mixed ^ mixed >> 16) * 0x7FEB352Du;
    mixed = (mixed ^ mixed >> 15) * 0x846CA68Bu;
    return mixed ^ mixed >> 16;
  }
};

RowRandom row_random(const RoundingKey& key) {
  const auto more = static_cast<uint32_t>(key.row >> 32) ^ key.tensor << 24;
  const auto words = philox({static_cast<uint32_t>(key.row), more, kRoundingStream, 0},
                            static_cast<uint32_t>(key.step), static_cast<uint32_t>(key.step >> 32));
  return {words[0], words[1] | 1u};
}

using detail::pick;

// Adds 16 random bits below the last bit that stays, and cuts off there.
MILLRACE_INLINE uint32_t round_to_bf16(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const uint32_t quiet = pick(magnitude > 0x7F800000u, 0x400000u, 0u);
  return pick(magnitude >= 0x7F800000u, bits | quiet, bits + (random >> 16)) >> 16;
}

MILLRACE_INLINE uint32_t round_to_f16(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // Normal numbers lose 13 bits; below 2^-14 the spacing is 2^-24.
  const uint32_t normal = (magnitude + (random >> 19) - 0x38000000u) >> 13;
  const bool is_small = magnitude < 0x38800000u;
  const auto small = std::bit_cast<float>(pick(is_small, magnitude, 0u));
  const float share = static_cast<float>(static_cast<int32_t>(random >> 8)) * 0x1.0p-24f;
  const auto subnormal = static_cast<uint32_t>(static_cast<int32_t>(small * 0x1.0p24f + share));
  uint32_t result = pick(is_small, subnormal, normal);
  result = pick(magnitude >= 0x477FE000u, 0x7BFFu, result);  // 65504, the largest
  result = pick(magnitude >= 0x7F800000u, 0x7C00u, result);
  result = pick(magnitude > 0x7F800000u, 0x7E00u, result);
  return result | sign;
}

// Words first and halves of them behind, so that the arithmetic has whole registers.
template <uint32_t (*round)(float, uint32_t)>
MILLRACE_INLINE void store_rounded(const float* __restrict values, int64_t count,
                                   const RowRandom& random, uint16_t* __restrict out) {
  constexpr int64_t kChunk = 256;
  uint32_t words[kChunk];
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t part = count - first < kChunk ? count - first : kChunk;
    for (int64_t i = 0; i < part; ++i) {
      words[i] = round(values[first + i], random.word(static_cast<uint32_t>(first + i)));
    }
    for (int64_t i = 0; i < part; ++i) out[first + i] = static_cast<uint16_t>(words[i]);
  }
}

MILLRACE_VECTORIZED void store_bf16(const float* values, int64_t count, const RowRandom& random,
                                    uint16_t* out) {
  store_rounded<round_to_bf16>(values, count, random, out);
}

MILLRACE_VECTORIZED void store_f16(const float* values, int64_t count, const RowRandom& random,
                                   uint16_t* out) {
  store_rounded<round_to_f16>(values, count, random, out);
}

MILLRACE_VECTORIZED float sum_of_float_squares(const float* values, int64_t count) {
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

void load_row(graph::DataType type, const std::byte* row, int64_t count, float* values) {
  widen_part(type, row, count, values);
}

void store_row(graph::DataType type, const float* values, int64_t count, const RoundingKey& key,
               std::byte* row) {
  switch (type) {
    case graph::DataType::f32:
      std::memcpy(row, values, static_cast<size_t>(count) * sizeof(float));
      return;
    case graph::DataType::bf16:
      return store_bf16(values, count, row_random(key), reinterpret_cast<uint16_t*>(row));
    case graph::DataType::f16:
      return store_f16(values, count, row_random(key), reinterpret_cast<uint16_t*>(row));
    default:
      throw std::logic_error("a row of centres is f32, bf16 or f16");
  }
}

float sum_of_squares(const float* values, int64_t count) {
  return sum_of_float_squares(values, count);
}

}  // namespace millrace::kernels
