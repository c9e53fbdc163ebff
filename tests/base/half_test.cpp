#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace millrace {
namespace {

// A format of 16 bits by the textbook: sign, exponent, fraction. Independent of the code under
// test: values are made with ldexp, and the nearest is found by search among all of them.
struct Format {
  int fraction_bits;
  int bias;

  double value(uint16_t bits) const {
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const int exponent = (bits & 0x7FFF) >> fraction_bits;
    const int highest = 0x7FFF >> fraction_bits;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == highest) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                           : std::numeric_limits<double>::quiet_NaN();
    }
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
  }

  uint16_t infinity() const {
    return static_cast<uint16_t>((0x7FFF >> fraction_bits) << fraction_bits);
  }

  // What the value of the infinity's bits would be, were it a number: halfway to it and beyond
  // is too large.
  double beyond() const { return 2 * std::ldexp(1, (0x7FFF >> fraction_bits) - 1 - bias); }

  uint16_t nearest(float value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isinf(value)) return sign | infinity();
    const auto at = [&](int bits) {
      return bits >= infinity() ? beyond() : this->value(static_cast<uint16_t>(bits));
    };
    int low = 0;
    int high = infinity();
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      (at(middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - at(low);
    const double above = at(high) - magnitude;
    const bool up = above < below || (above == below && low % 2 == 1);
    return static_cast<uint16_t>(sign | (up ? high : low));
  }
};

constexpr Format kF16 = {10, 15};
constexpr Format kBf16 = {7, 127};

std::vector<float> interesting_floats() {
  std::vector<float> values;
  for (const Format& format : {kF16, kBf16}) {
    for (int bits = 0; bits < format.infinity(); ++bits) {
      const auto here = static_cast<float>(format.value(static_cast<uint16_t>(bits)));
      const auto next = bits + 1 == format.infinity()
                            ? format.beyond()
                            : format.value(static_cast<uint16_t>(bits + 1));
      const auto halfway = static_cast<float>((static_cast<double>(here) + next) / 2);
      for (float value : {here, halfway, std::nextafter(halfway, 0.0f),
                          std::nextafter(halfway, std::numeric_limits<float>::infinity())}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
  }
  const Random random(7, 1);
  for (uint64_t i = 0; i < 100000; ++i) {
    for (uint32_t word : random.words(i)) values.push_back(std::bit_cast<float>(word));
  }
  for (uint32_t bits :
       {0x00000000u, 0x80000000u, 0x7F800000u, 0xFF800000u, 0x7FC00000u, 0x7F800001u, 0xFF800001u,
        0x7FBFFFFFu, 0xFFFFFFFFu, 0x7F7FFFFFu, 0x00000001u, 0x807FFFFFu, 0x477FEFFFu, 0x477FF000u,
        0x33000000u, 0x33000001u, 0x387FFFFFu}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  return values;
}

bool is_quiet_nan(const Format& format, uint16_t bits) {
  return (bits & 0x7FFF) > format.infinity() && (bits >> (format.fraction_bits - 1) & 1) != 0;
}

void expect_nearest(const Format& format, const std::vector<float>& values,
                    const std::vector<uint16_t>& halves) {
  int wrong = 0;
  for (size_t i = 0; i < values.size() && wrong < 5; ++i) {
    if (std::isnan(values[i])) {
      if (is_quiet_nan(format, halves[i]) && std::signbit(values[i]) == (halves[i] >> 15 != 0)) {
        continue;
      }
    } else if (halves[i] == format.nearest(values[i])) {
      continue;
    }
    ++wrong;
    ADD_FAILURE() << values[i] << " became " << halves[i] << " and not "
                  << format.nearest(values[i]);
  }
}

TEST(Half, NarrowsToTheNearest) {
  const std::vector<float> values = interesting_floats();
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) halves[i] = to_f16(values[i]);
  expect_nearest(kF16, values, halves);
  for (size_t i = 0; i < values.size(); ++i) halves[i] = to_bf16(values[i]);
  expect_nearest(kBf16, values, halves);
}

TEST(Half, WidensEveryValueExactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const std::pair<const Format*, float> cases[] = {{&kF16, from_f16(half)},
                                                     {&kBf16, from_bf16(half)}};
    for (const auto& [format, value] : cases) {
      const double expected = format->value(half);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << bits;
      } else {
        EXPECT_EQ(value, expected) << bits;
        EXPECT_EQ(std::signbit(value), std::signbit(expected)) << bits;
      }
    }
  }
}

TEST(Half, EveryValueSurvivesTheWayThere) {
  for (int bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool f16_nan = (bits & 0x7FFF) > kF16.infinity();
    const bool bf16_nan = (bits & 0x7FFF) > kBf16.infinity();
    EXPECT_EQ(to_f16(from_f16(half)), f16_nan ? half | 0x200 : half);
    EXPECT_EQ(to_bf16(from_bf16(half)), bf16_nan ? half | 0x40 : half);
  }
}

TEST(Half, ArraysGiveTheSameBitsWithEveryInstructionSet) {
  const std::vector<float> values = interesting_floats();
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const HalfFunctions& functions : half_functions()) {
    std::vector<uint16_t> f16(values.size()), bf16(values.size());
    functions.floats_to_f16(values.data(), count, f16.data());
    functions.floats_to_bf16(values.data(), count, bf16.data());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(f16[i], to_f16(values[i])) << std::bit_cast<uint32_t>(values[i]);
      ASSERT_EQ(bf16[i], to_bf16(values[i])) << std::bit_cast<uint32_t>(values[i]);
    }
    std::vector<float> wide(all.size());
    functions.f16_to_floats(all.data(), 65536, wide.data());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(from_f16(all[i])));
    }
    functions.bf16_to_floats(all.data(), 65536, wide.data());
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(from_bf16(all[i])));
    }
  }
}

// Lengths and places around the widths of registers, and one big enough to be streamed.
TEST(Half, ArraysMayLieAnywhereAndEndAnywhere) {
  constexpr int64_t kBig = 2200003;
  std::vector<float> values(kBig + 40);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<double>(i % 4001) * 0.37 - 700);
  }
  for (const HalfFunctions& functions : half_functions()) {
    for (const int64_t count :
         {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{33}, int64_t{70}, kBig}) {
      for (const int64_t shift : {0, 1, 5}) {
        std::vector<uint16_t> halves(static_cast<size_t>(count) + 40, 0xABCD);
        functions.floats_to_f16(values.data() + shift, count, halves.data() + shift);
        std::vector<float> back(static_cast<size_t>(count) + 40, -1.0f);
        functions.f16_to_floats(halves.data() + shift, count, back.data() + 3 * shift);
        for (int64_t i = 0; i < count; ++i) {
          const uint16_t expected = to_f16(values[static_cast<size_t>(i + shift)]);
          ASSERT_EQ(halves[static_cast<size_t>(i + shift)], expected);
          ASSERT_EQ(back[static_cast<size_t>(i + 3 * shift)], from_f16(expected));
        }
        EXPECT_EQ(halves[static_cast<size_t>(count + shift)], 0xABCD);
        EXPECT_EQ(back[static_cast<size_t>(count + 3 * shift)], -1.0f);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
