// Depthwise convolutions in own loops, in vectors of 8 and of 16 floats, whatever this processor
// has: the code of both is compiled here once more, for any processor.
#include "kernels/depthwise/depthwise_convolution.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "testing.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/depthwise/row_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::DepthwiseLoops kDepthwiseOf8 = kernels::row_code::make_depthwise_loops<8, 12>();
constexpr kernels::DepthwiseLoops kDepthwiseOf16 =
    kernels::row_code::make_depthwise_loops<16, 25>();

struct DepthwiseCase {
  int64_t samples;
  int64_t channels;
  graph::Shape image;
  graph::Shape kernel;
  graph::Shape stride;
  graph::Shape padding;
};

// Rows of many outputs and of few, images smaller than their kernels, strides that leave rows or
// columns out, kernels of one tap, and kernels whose sums go in several turns.
const DepthwiseCase kDepthwiseCases[] = {
    {2, 32, {14, 31}, {3, 3}, {1, 1}, {1, 1}}, {9, 16, {7, 7}, {3, 3}, {2, 2}, {1, 1}},
    {2, 16, {12, 15}, {3, 3}, {2, 2}, {0, 0}}, {3, 48, {14, 14}, {5, 5}, {1, 1}, {2, 2}},
    {2, 16, {13, 28}, {5, 5}, {2, 2}, {2, 2}}, {2, 16, {7, 7}, {7, 7}, {1, 1}, {0, 0}},
    {1, 32, {9, 10}, {7, 7}, {2, 2}, {3, 3}},  {2, 16, {2, 2}, {5, 5}, {1, 1}, {2, 2}},
    {1, 16, {6, 9}, {1, 1}, {2, 2}, {0, 0}},   {1, 16, {6, 11}, {2, 4}, {1, 2}, {1, 0}},
    {1, 16, {8, 9}, {6, 3}, {2, 1}, {0, 2}},   {1, 16, {4, 4}, {1, 1}, {1, 1}, {1, 1}},
};

SingleOperator depthwise_operator(const DepthwiseCase& each,
                                  kernels::ConvolutionDirection direction) {
  graph::Attributes attributes = {{"stride", each.stride},
                                  {"padding", each.padding},
                                  {"dilation", graph::Attributes::Integers{1, 1}},
                                  {"groups", each.channels}};
  const auto outputs_in = [&](size_t axis) {
    return (each.image[axis] + 2 * each.padding[axis] - each.kernel[axis]) / each.stride[axis] + 1;
  };
  const graph::Shape x = {each.samples, each.channels, each.image[0], each.image[1]};
  const graph::Shape w = {each.channels, 1, each.kernel[0], each.kernel[1]};
  const graph::Shape y = {each.samples, each.channels, outputs_in(0), outputs_in(1)};
  if (direction == kernels::ConvolutionDirection::backward_data) {
    attributes.set("input_shape", x);
    return {"convolution_backward_data", attributes, {{y}, {w}}};
  }
  if (direction == kernels::ConvolutionDirection::backward_weights) {
    attributes.set("kernel", each.kernel);
    attributes.set("bias", false);
    return {"convolution_backward_weights", attributes, {{x}, {y}}};
  }
  attributes.set("relu", true);
  return {"convolution", attributes, {{x}, {w}, {{each.channels}}}};
}

kernels::KernelRequest depthwise_request(const SingleOperator& single, int64_t lanes) {
  kernels::KernelRequest request =
      single.request({}, graph::Layout("aBcd" + std::to_string(lanes) + "b"));
  const bool gradient = single.op.type == "convolution_backward_weights";
  (gradient ? request.outputs[0] : request.inputs[1]).layout = {};
  if (request.inputs.size() > 2) request.inputs[2].layout = {};
  return request;
}

class DepthwiseConvolution : public ::testing::TestWithParam<const kernels::DepthwiseLoops*> {
 protected:
  void TearDown() override { set_team_size(team_); }

 private:
  int team_ = team_size();
};

TEST_P(DepthwiseConvolution, AgreesWithTheReferenceWhateverTheThreads) {
  const kernels::DepthwiseLoops& loops = *GetParam();
  for (const DepthwiseCase& each : kDepthwiseCases) {
    for (const auto direction :
         {kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
          kernels::ConvolutionDirection::backward_weights}) {
      const SingleOperator single = depthwise_operator(each, direction);
      std::vector<Values> inputs;
      for (const graph::TensorType& type : single.inputs) {
        inputs.push_back(random_values(type, inputs.size() + 5));
      }
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

INSTANTIATE_TEST_SUITE_P(Vectors, DepthwiseConvolution,
                         ::testing::Values(&kDepthwiseOf8, &kDepthwiseOf16),
                         [](const auto& parameter) {
                           return "Of" + std::to_string(parameter.param->lanes);
                         });

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
  EXPECT_TRUE(refused([](auto& p) { p.groups = 16; }));
  EXPECT_TRUE(refused([](auto& p) { p.halves = true; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = p.x.shape[1] = p.y.shape[1] = p.w.shape[0] = 36; }));
  EXPECT_TRUE(
      refused([](auto& p) { p.direction = kernels::ConvolutionDirection::backward_weights; }));
}

}  // namespace
}  // namespace millrace::testing
