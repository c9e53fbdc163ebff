// Winograd's method in own loops, in vectors of 8 and of 16 floats, whatever this processor has:
// the code of both is compiled here once more, for any processor.
#include "kernels/winograd/tiled_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/processor.h"
#include "own_convolutions.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/winograd/tile_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::TileLoops kLoopsOf8 = kernels::tile_code::make_tile_loops<8, 6>();
constexpr kernels::TileLoops kLoopsOf16 = kernels::tile_code::make_tile_loops<16, 12>();

// One tile and less, edges on all sides, panels that are half full, more depth than goes at a time,
// more tiles than a piece.
constexpr SquareCase kTiledCases[] = {
    {1, 16, 16, 3, 3, 3, 1, 1}, {2, 32, 48, 9, 14, 3, 1, 1}, {1, 16, 32, 12, 7, 3, 1, 0},
    {2, 32, 16, 6, 5, 3, 1, 2}, {1, 288, 16, 8, 8, 3, 1, 1}, {3, 16, 16, 26, 22, 3, 1, 1},
    {1, 16, 16, 1, 1, 5, 1, 2}, {2, 32, 48, 9, 14, 5, 1, 2}, {1, 16, 32, 12, 7, 5, 1, 0},
    {2, 32, 16, 6, 5, 5, 1, 4}, {1, 288, 16, 8, 8, 5, 1, 2}, {2, 16, 16, 27, 19, 5, 1, 1},
};

SingleOperator operator_of(const SquareCase& each, kernels::ConvolutionDirection direction,
                           bool bias) {
  return convolution_operator(each.general(), direction, bias, bias);
}

kernels::KernelRequest tiled_request(const SingleOperator& single,
                                     const kernels::KernelOptions& options,
                                     const kernels::TileLoops& loops) {
  kernels::KernelRequest request = single.request(options, kernels::tiled_images(loops));
  weights_of(request).layout = kernels::tiled_weights(loops);
  return request;
}

// Differences are held against the largest value: what is stated of the method's error.
void expect_close(const Values& got, const Values& expected) {
  ASSERT_EQ(got.size(), expected.size());
  double largest = 0;
  double error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    error = std::max(error, std::abs(static_cast<double>(got[i]) - expected[i]));
  }
  EXPECT_LT(error, 5e-6 * largest);
}

using TiledConvolution = TestOfLoops<kernels::TileLoops>;

TEST_P(TiledConvolution, AgreesWithTheReference) {
  const kernels::TileLoops& loops = *GetParam();
  for (const SquareCase& each : kTiledCases) {
    for (const auto direction : kDirections) {
      for (const bool bias : {false, true}) {
        for (const int threads : {1, 3}) {
          const SingleOperator single = operator_of(each, direction, bias);
          kernels::KernelOptions options;
          options.threads = threads;
          set_team_size(threads);
          const kernels::KernelRequest request = tiled_request(single, options, loops);
          const kernels::ConvolutionProblem problem = kernels::convolution_problem(request);
          SCOPED_TRACE(problem.key());
          ASSERT_EQ(kernels::refusal_of_tiles(problem, &loops), "");
          const std::vector<Values> inputs = random_inputs(single);
          const KernelRun expected = run_reference(single, inputs);
          const auto kernel = kernels::make_tiled_convolution(problem, threads, loops);
          const KernelRun got = run_kernel(*kernel, request, inputs);
          for (size_t i = 0; i < expected.outputs.size(); ++i) {
            expect_close(got.outputs[i], expected.outputs[i]);
          }
        }
      }
    }
  }
}

TEST_P(TiledConvolution, WhatEndsItIsDoneToEveryResult) {
  const kernels::TileLoops& loops = *GetParam();
  const kernels::KernelOptions options;
  for (const SquareCase& each : kTiledCases) {
    const SingleOperator single = operator_of(each, kernels::ConvolutionDirection::forward, false);
    kernels::ConvolutionProblem plain = kernels::convolution_problem(single.request(options));
    SCOPED_TRACE(plain.key());
    expect_ending(plain, loops.lanes, [&](const auto& problem) {
      return kernels::make_tiled_convolution(problem, 1, loops);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, TiledConvolution, ::testing::Values(&kLoopsOf8, &kLoopsOf16),
                         name_of_loops);

TEST(TiledConvolutionChoice, OnlyItsShapesAreServed) {
  const SquareCase usual = {2, 32, 48, 9, 14, 3, 1, 1};
  const SingleOperator single = operator_of(usual, kernels::ConvolutionDirection::forward, false);
  const kernels::KernelOptions options;
  const kernels::ConvolutionProblem problem = kernels::convolution_problem(single.request(options));
  EXPECT_EQ(kernels::refusal_of_tiles(problem, &kLoopsOf8), "");
  EXPECT_NE(kernels::refusal_of_tiles(problem, nullptr), "");
  const auto refused = [&](auto change) {
    kernels::ConvolutionProblem changed = problem;
    change(changed);
    return !kernels::refusal_of_tiles(changed, &kLoopsOf8).empty();
  };
  EXPECT_TRUE(refused([](auto& p) { p.stride = {2, 2}; }));
  EXPECT_TRUE(refused([](auto& p) { p.dilation = {1, 2}; }));
  EXPECT_TRUE(refused([](auto& p) { p.padding = {3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.padding = {1, 0}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 32, 1, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 32, 5, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 32, 7, 7}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 36, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {42, 32, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = 2; }));
  EXPECT_TRUE(refused([](auto& p) { p.halves = true; }));
}

// Where oneDNN has no Winograd, the loops are what large images are convolved with.
TEST(TiledConvolutionChoice, TheyAreChosenWithAvx2) {
  if (kernels::vector_instructions() != kernels::VectorInstructions::avx2) {
    EXPECT_EQ(kernels::tile_loops_here() != nullptr,
              kernels::vector_instructions() == kernels::VectorInstructions::avx512);
    return;
  }
  kernels::KernelOptions options;
  options.convolution = kernels::ConvolutionAlgorithm::winograd;
  const SingleOperator single =
      operator_of({2, 64, 64, 28, 28, 3, 1, 1}, kernels::ConvolutionDirection::forward, false);
  std::string chosen;
  kernels::make_kernel(wished(single, options, graph::Layout("aBcd8b")), &chosen);
  EXPECT_EQ(chosen, "winograd tiles");
}

}  // namespace
}  // namespace millrace::testing
