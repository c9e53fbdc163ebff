#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "head_harness.h"
#include "kernels/head/storage.h"

namespace millrace::testing {
namespace {

constexpr graph::DataType kSixteenBits[] = {graph::DataType::bf16, graph::DataType::f16};

std::vector<float> rounded(graph::DataType type, const std::vector<float>& values, uint64_t row) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> stored(values.size());
  auto* bytes = reinterpret_cast<std::byte*>(stored.data());
  kernels::store_row(type, values.data(), count,
                     kernels::rounding_key(1, 2, static_cast<int64_t>(row), 0), bytes);
  std::vector<float> back(values.size());
  kernels::load_row(type, bytes, count, back.data());
  return back;
}

// The distance between the numbers next to x.
double spacing(graph::DataType type, double x) {
  const int digits = type == graph::DataType::bf16 ? 8 : 11;
  const int least = type == graph::DataType::bf16 ? -126 : -14;
  const int exponent = std::max(least, std::ilogb(x));
  return std::ldexp(1.0, exponent - digits + 1);
}

TEST(HeadStorage, RoundsToANeighbourAndRightOnAverage) {
  const std::vector<float> values = {0.01234567f, -3.3f, 1.0f,  1.0001f,
                                     -2e-5f,      3e-7f, 1e-8f, 600.3f};
  for (const graph::DataType type : kSixteenBits) {
    std::vector<double> sums(values.size());
    constexpr int kDraws = 20000;
    for (int draw = 0; draw < kDraws; ++draw) {
      const auto back = rounded(type, values, static_cast<uint64_t>(draw));
      for (size_t i = 0; i < values.size(); ++i) {
        const double step = spacing(type, values[i]);
        EXPECT_LE(std::abs(back[i] - values[i]), step * (1 + 1e-6));
        sums[i] += back[i];
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double step = spacing(type, values[i]);
      EXPECT_NEAR(sums[i] / kDraws, values[i], 4 * 0.5 * step / std::sqrt(kDraws))
          << graph::name_of(type) << " " << values[i];
    }
  }
}

TEST(HeadStorage, WhatFitsStaysAndSpecialValuesToo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> exact = {0.0f,        -0.0f,  1.0f,      -1.5f,
                                    0.00390625f, 256.0f, kInfinity, -kInfinity};
  for (const graph::DataType type : kSixteenBits) {
    for (uint64_t row = 0; row < 50; ++row) EXPECT_EQ(rounded(type, exact, row), exact);
    EXPECT_TRUE(std::isnan(rounded(type, {std::nanf("")}, 0)[0]));
  }
  EXPECT_EQ(rounded(graph::DataType::f16, {1e6f}, 0)[0], 65504.0f);
  for (int bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float value = 0;
    kernels::load_row(graph::DataType::f16, reinterpret_cast<const std::byte*>(&half), 1, &value);
    const int exponent = bits >> 10;
    const double mantissa = bits & 0x3FF;
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
  }
}

TEST(HeadStorage, NeighboursAndRowsRoundIndependently) {
  const std::vector<float> halfway(4096, 1.0f + 0.5f / 128);
  const auto ups = [&](uint64_t row) {
    std::vector<int> result;
    for (const float x : rounded(graph::DataType::bf16, halfway, row))
      result.push_back(x > 1 ? 1 : 0);
    return result;
  };
  const auto agreement = [](const std::vector<int>& a, const std::vector<int>& b, size_t shift) {
    double same = 0;
    for (size_t i = 0; i + shift < a.size(); ++i) same += a[i] == b[i + shift] ? 1 : 0;
    return same / static_cast<double>(a.size() - shift);
  };
  const auto first = ups(1);
  for (const size_t shift : {1u, 2u, 16u, 256u})
    EXPECT_NEAR(agreement(first, first, shift), 0.5, 0.04);
  for (const uint64_t row : {2u, 3u, 1000u}) EXPECT_NEAR(agreement(first, ups(row), 0), 0.5, 0.04);
  EXPECT_EQ(ups(1), first);
}

TEST(HeadStorage, SixteenBitHeadsFollowTheDenseSoftmax) {
  for (const graph::DataType type : kSixteenBits) {
    for (const double rate : {1.0, 0.3}) {
      HeadCase entry = {.batch = 12, .dimension = 64, .classes = 700, .sample_rate = rate};
      entry.storage = type;
      entry.scale = 16;
      HeadValues values = random_head(entry, 21);
      HeadStep start = run_head(entry, values);
      const HeadStep dense = dense_head(entry, values, start.samples);
      EXPECT_NEAR(start.loss, dense.loss, 0.01 * dense.loss);
      double error = 0, size = 0;
      for (size_t i = 0; i < dense.of_embeddings.size(); ++i) {
        error += std::pow(start.of_embeddings[i] - dense.of_embeddings[i], 2);
        size += std::pow(dense.of_embeddings[i], 2);
      }
      EXPECT_LT(std::sqrt(error / size), 0.01) << graph::name_of(type);
      for (size_t i = 0; i < dense.centres.size(); ++i) {
        EXPECT_NEAR(start.centres[i], dense.centres[i],
                    2.5 * spacing(type, dense.centres[i]) + 2e-4);
      }
    }
  }
}

// Steps far below the spacing add up: with rounding to the nearest the centre would not move.
TEST(HeadStorage, SmallStepsAreNotLost) {
  HeadCase entry = {.batch = 4, .dimension = 512, .classes = 8};
  entry.storage = graph::DataType::bf16;
  entry.optimizer = "";
  entry.scale = 1;
  entry.step.learning_rate = 1e-2f;
  HeadValues values = random_head(entry, 22);
  for (double& w : values.centres) w *= 10;
  HeadValues exact = values;
  HeadValues stored = values;
  HeadCase precise = entry;
  precise.storage = graph::DataType::f32;
  for (int step = 0; step < 400; ++step) {
    entry.step.step = precise.step.step = step;
    stored.centres = run_head(entry, stored).centres;
    exact.centres = run_head(precise, exact).centres;
  }
  double moved = 0, expected = 0;
  for (size_t i = 0; i < values.centres.size(); ++i) {
    const double way = exact.centres[i] - values.centres[i];
    moved += way * (stored.centres[i] - values.centres[i]);
    expected += way * way;
  }
  EXPECT_NEAR(moved / expected, 1, 0.05);
}

}  // namespace
}  // namespace millrace::testing
