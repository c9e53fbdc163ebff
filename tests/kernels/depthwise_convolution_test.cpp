// Depthwise convolutions in own loops, in vectors of 8 and of 16 floats, whatever this processor
// has: the code of both is compiled here once more, for any processor.
#include "kernels/depthwise/depthwise_convolution.h"

#include <gtest/gtest.h>

#include "own_convolutions.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/depthwise/row_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::DepthwiseLoops kDepthwiseOf8 = kernels::row_code::make_depthwise_loops<8, 12>();
constexpr kernels::DepthwiseLoops kDepthwiseOf16 =
    kernels::row_code::make_depthwise_loops<16, 25>();

ConvolutionCase each_channel(int64_t samples, int64_t channels, graph::Shape image,
                             graph::Shape kernel, graph::Shape stride, graph::Shape padding) {
  return {samples, channels, channels, image, kernel, stride, padding, {1, 1}, channels};
}

ConvolutionCase each_group(int64_t members, ConvolutionCase each) {
  each.groups = each.inputs / members;
  return each;
}

// Rows of many outputs and of few, images smaller than their kernels, strides that leave rows or
// columns out, kernels of one tap, kernels whose sums go in several turns, and groups, those of one
// block of 16 channels and those of more.
const ConvolutionCase kDepthwiseCases[] = {
    each_channel(2, 32, {14, 31}, {3, 3}, {1, 1}, {1, 1}),
    each_channel(9, 16, {7, 7}, {3, 3}, {2, 2}, {1, 1}),
    each_channel(2, 16, {12, 15}, {3, 3}, {2, 2}, {0, 0}),
    each_channel(3, 48, {14, 14}, {5, 5}, {1, 1}, {2, 2}),
    each_channel(2, 16, {13, 28}, {5, 5}, {2, 2}, {2, 2}),
    each_channel(2, 16, {7, 7}, {7, 7}, {1, 1}, {0, 0}),
    each_channel(1, 32, {9, 10}, {7, 7}, {2, 2}, {3, 3}),
    each_channel(2, 16, {2, 2}, {5, 5}, {1, 1}, {2, 2}),
    each_channel(1, 16, {6, 9}, {1, 1}, {2, 2}, {0, 0}),
    each_channel(1, 16, {6, 11}, {2, 4}, {1, 2}, {1, 0}),
    each_channel(1, 16, {8, 9}, {6, 3}, {2, 1}, {0, 2}),
    each_channel(1, 16, {4, 4}, {1, 1}, {1, 1}, {1, 1}),
    each_group(2, each_channel(2, 32, {14, 31}, {3, 3}, {1, 1}, {1, 1})),
    each_group(4, each_channel(9, 48, {9, 12}, {3, 3}, {2, 2}, {1, 1})),
    each_group(4, each_channel(2, 16, {8, 11}, {3, 3}, {1, 1}, {1, 1})),
    each_group(2, each_channel(3, 32, {7, 10}, {2, 3}, {2, 1}, {0, 1})),
    each_group(4, each_channel(1, 16, {5, 6}, {1, 1}, {1, 1}, {0, 0})),
};

SingleOperator depthwise_operator(const ConvolutionCase& each,
                                  kernels::ConvolutionDirection direction) {
  const bool forward = direction == kernels::ConvolutionDirection::forward;
  return convolution_operator(each, direction, forward, true);
}

kernels::KernelRequest depthwise_request(const SingleOperator& single, int64_t lanes) {
  kernels::KernelRequest request =
      single.request({}, graph::Layout("aBcd" + std::to_string(lanes) + "b"));
  weights_of(request).layout = {};
  if (request.inputs.size() > 2) request.inputs[2].layout = {};
  return request;
}

using DepthwiseConvolution = TestOfLoops<kernels::DepthwiseLoops>;

TEST_P(DepthwiseConvolution, AgreesWithTheReferenceWhateverTheThreads) {
  const kernels::DepthwiseLoops& loops = *GetParam();
  for (const ConvolutionCase& each : kDepthwiseCases) {
    for (const auto direction : kDirections) {
      const SingleOperator single = depthwise_operator(each, direction);
      const std::vector<Values> inputs = random_inputs(single);
      const KernelRun expected = run_reference(single, inputs);
      const kernels::KernelRequest request = depthwise_request(single, loops.lanes);
      const kernels::ConvolutionProblem problem = kernels::convolution_problem(request);
      Values first;
      for (const int threads : {1, 3, 8}) {
        set_team_size(threads);
        SCOPED_TRACE(problem.key() + ", threads " + std::to_string(threads));
        ASSERT_EQ(kernels::refusal_of_depthwise(problem, &loops), "");
        const auto kernel = kernels::make_depthwise_convolution(problem, loops);
        const KernelRun got = run_kernel(*kernel, request, inputs);
        EXPECT_EQ(difference(got.outputs[0], expected.outputs[0], 1e-5), "");
        if (threads == 1) first = got.outputs[0];
        EXPECT_EQ(got.outputs[0], first);
      }
    }
  }
}

TEST_P(DepthwiseConvolution, SumsOfManyPixelsLoseLittle) {
  const kernels::DepthwiseLoops& loops = *GetParam();
  const SingleOperator single =
      depthwise_operator(each_channel(4, 16, {56, 56}, {3, 3}, {1, 1}, {1, 1}),
                         kernels::ConvolutionDirection::backward_weights);
  const kernels::KernelRequest request = depthwise_request(single, loops.lanes);
  const auto kernel =
      kernels::make_depthwise_convolution(kernels::convolution_problem(request), loops);
  EXPECT_LE(distance_of_positive_sums(single, request, *kernel), 4e-7);
}

INSTANTIATE_TEST_SUITE_P(Vectors, DepthwiseConvolution,
                         ::testing::Values(&kDepthwiseOf8, &kDepthwiseOf16), name_of_loops);

TEST(DepthwiseConvolutionChoice, OnlyItsShapesAreServed) {
  const SingleOperator single =
      depthwise_operator(kDepthwiseCases[0], kernels::ConvolutionDirection::forward);
  const kernels::ConvolutionProblem problem = kernels::convolution_problem(single.request({}));
  EXPECT_EQ(kernels::refusal_of_depthwise(problem, &kDepthwiseOf8), "");
  EXPECT_NE(kernels::refusal_of_depthwise(problem, nullptr), "");
  const auto refused = [&](auto change) {
    kernels::ConvolutionProblem changed = problem;
    change(changed);
    return !kernels::refusal_of_depthwise(changed, &kDepthwiseOf8).empty();
  };
  EXPECT_TRUE(refused([](auto& p) { p.stride = {1, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.dilation = {2, 1}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape[3] = 8; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape[1] = 2; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = 1; }));
  EXPECT_TRUE(refused([](auto& p) { p.widened.narrow = 8; }));
  EXPECT_TRUE(refused([](auto& p) { p.widened.narrow = 2, p.w.shape[3] = 4; }));
  EXPECT_TRUE(refused([](auto& p) { p.halves = true; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = p.x.shape[1] = p.y.shape[1] = p.w.shape[0] = 36; }));
  EXPECT_TRUE(
      refused([](auto& p) { p.direction = kernels::ConvolutionDirection::backward_weights; }));
}

}  // namespace
}  // namespace millrace::testing
