// Convolutions as products of matrices in own loops, in vectors of 8 and of 16 floats, whatever
// this processor has: the code of both is compiled here once more, for any processor.
#include "kernels/panels/panel_convolution.h"

#include <gtest/gtest.h>

#include "kernels/convolution_costs.h"
#include "kernels/processor.h"
#include "own_convolutions.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/panels/panel_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::PanelLoops kLoopsOf8 = kernels::panel_code::make_panel_loops<8, 4>();
constexpr kernels::PanelLoops kLoopsOf16 = kernels::panel_code::make_panel_loops<16, 8>();

// Images as they lie and gathered; several in a piece and in several pieces; columns left over;
// more depth than goes at a time; strides that leave pixels out, at the edge and everywhere.
constexpr SquareCase kPanelCases[] = {
    {2, 32, 48, 9, 14, 1, 1, 0},  {9, 16, 64, 7, 7, 1, 1, 0},   {1, 288, 16, 5, 5, 1, 1, 0},
    {2, 16, 80, 16, 15, 1, 2, 0}, {3, 32, 16, 8, 9, 3, 2, 1},   {2, 48, 32, 31, 30, 3, 2, 1},
    {1, 16, 16, 3, 3, 3, 1, 1},   {2, 16, 32, 12, 11, 5, 3, 2}, {1, 32, 16, 13, 12, 3, 2, 2, 2},
    {1, 16, 16, 9, 9, 2, 4, 0},   {1, 16, 16, 1, 5, 1, 2, 0},   {1, 16, 16, 8, 8, 1, 1, 1},
};

SingleOperator operator_of(const SquareCase& each, kernels::ConvolutionDirection direction) {
  return convolution_operator(each.general(), direction, false, false);
}

kernels::ConvolutionProblem forward_problem(const SquareCase& each) {
  const kernels::KernelOptions options;
  return kernels::convolution_problem(
      operator_of(each, kernels::ConvolutionDirection::forward).request(options));
}

kernels::KernelRequest panel_request(const SingleOperator& single,
                                     const kernels::KernelOptions& options, int64_t lanes) {
  const std::string block = std::to_string(lanes);
  kernels::KernelRequest request = single.request(options, graph::Layout("aBcd" + block + "b"));
  weights_of(request).layout = graph::Layout("ABcd" + block + "b" + block + "a");
  return request;
}

using PanelConvolution = TestOfLoops<kernels::PanelLoops>;

TEST_P(PanelConvolution, AgreesWithTheReferenceWhateverTheThreads) {
  const kernels::PanelLoops& loops = *GetParam();
  for (const SquareCase& each : kPanelCases) {
    for (const auto direction : kDirections) {
      const bool bias = direction == kernels::ConvolutionDirection::forward && each.inputs == 32;
      const SingleOperator single = convolution_operator(each.general(), direction, bias, bias);
      const std::vector<Values> inputs = random_inputs(single);
      const KernelRun expected = run_reference(single, inputs);
      Values first;
      for (const int threads : {1, 3, 8}) {
        kernels::KernelOptions options;
        options.threads = threads;
        set_team_size(threads);
        const kernels::KernelRequest request = panel_request(single, options, loops.lanes);
        const kernels::ConvolutionProblem problem = kernels::convolution_problem(request);
        SCOPED_TRACE(problem.key() + ", threads " + std::to_string(threads));
        ASSERT_EQ(kernels::refusal_of_panels(problem, &loops), "");
        const auto kernel = kernels::make_panel_convolution(problem, threads, loops);
        const KernelRun got = run_kernel(*kernel, request, inputs);
        EXPECT_EQ(difference(got.outputs[0], expected.outputs[0], 1e-5), "");
        if (threads == 1) first = got.outputs[0];
        EXPECT_EQ(got.outputs[0], first);
      }
    }
  }
}

TEST_P(PanelConvolution, SumsOfManyPixelsLoseLittle) {
  const kernels::PanelLoops& loops = *GetParam();
  const SingleOperator single =
      operator_of({4, 16, 16, 56, 56, 1, 1, 0}, kernels::ConvolutionDirection::backward_weights);
  const kernels::KernelRequest request = panel_request(single, {}, loops.lanes);
  const auto kernel =
      kernels::make_panel_convolution(kernels::convolution_problem(request), 1, loops);
  EXPECT_LE(distance_of_positive_sums(single, request, *kernel), 4e-7);
}

TEST_P(PanelConvolution, WhatEndsItIsDoneToEveryResult) {
  const kernels::PanelLoops& loops = *GetParam();
  for (const SquareCase& each : kPanelCases) {
    SCOPED_TRACE(forward_problem(each).key());
    for (const int threads : {1, 8}) {
      set_team_size(threads);
      expect_ending(forward_problem(each), loops.lanes, [&](const auto& problem) {
        return kernels::make_panel_convolution(problem, threads, loops);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, PanelConvolution, ::testing::Values(&kLoopsOf8, &kLoopsOf16),
                         name_of_loops);

TEST(PanelConvolutionChoice, OnlyItsShapesAreServed) {
  const SingleOperator single =
      operator_of({2, 32, 48, 9, 14, 3, 2, 1}, kernels::ConvolutionDirection::forward);
  const kernels::KernelOptions options;
  const kernels::ConvolutionProblem problem = kernels::convolution_problem(single.request(options));
  EXPECT_EQ(kernels::refusal_of_panels(problem, &kLoopsOf8), "");
  EXPECT_NE(kernels::refusal_of_panels(problem, nullptr), "");
  const auto refused = [&](auto change) {
    kernels::ConvolutionProblem changed = problem;
    change(changed);
    return !kernels::refusal_of_panels(changed, &kLoopsOf8).empty();
  };
  EXPECT_TRUE(refused([](auto& p) { p.stride = {2, 1}; }));
  EXPECT_TRUE(refused([](auto& p) {
    p.bias = true;
    p.direction = kernels::ConvolutionDirection::backward_weights;
  }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 36, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {42, 32, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = 2; }));
  EXPECT_TRUE(refused([](auto& p) { p.halves = true; }));
}

// Where they are clearly faster, as measured: with strides, and with AVX-512 also points without.
TEST(PanelConvolutionChoice, TheyAreChosenWhereTheyAreFaster) {
  using kernels::ConvolutionDirection;
  using kernels::ConvolutionMethod;
  const auto chosen = [](const SquareCase& each, ConvolutionDirection direction) {
    const kernels::KernelOptions options;
    const SingleOperator single = operator_of(each, direction);
    const auto problem = kernels::convolution_problem(single.request(options));
    return kernels::cheapest_method(problem, kernels::methods_for(problem));
  };
  const bool avx2 = kernels::vector_instructions() == kernels::VectorInstructions::avx2;
  const auto with_avx2 = avx2 ? ConvolutionMethod::panels : ConvolutionMethod::direct;
  const auto else_than_avx2 = avx2 ? ConvolutionMethod::direct : ConvolutionMethod::panels;
  const SquareCase strided_points = {8, 256, 512, 56, 56, 1, 2, 0};
  const SquareCase wide = {8, 256, 256, 28, 28, 3, 2, 1};
  const SquareCase points = {8, 256, 512, 28, 28, 1, 1, 0};
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::forward), ConvolutionMethod::direct);
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::backward_data), ConvolutionMethod::direct);
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::backward_weights), with_avx2);
  EXPECT_EQ(chosen(wide, ConvolutionDirection::forward), ConvolutionMethod::panels);
  EXPECT_EQ(chosen(wide, ConvolutionDirection::backward_weights), with_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::forward), else_than_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::backward_data), else_than_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::backward_weights), else_than_avx2);
}

}  // namespace
}  // namespace millrace::testing
