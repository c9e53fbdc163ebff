// What the tests of convolutions in own loops share.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "base/parallel.h"
#include "kernels/convolution_problem.h"
#include "testing.h"

namespace millrace::testing {

inline constexpr kernels::ConvolutionDirection kDirections[] = {
    kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
    kernels::ConvolutionDirection::backward_weights};

struct ConvolutionCase {
  int64_t samples;
  int64_t inputs;
  int64_t outputs;
  graph::Shape image;
  graph::Shape kernel;
  graph::Shape stride;
  graph::Shape padding;
  graph::Shape dilation = {1, 1};
  int64_t groups = 1;
};

// One with equal sides, steps and edges.
struct SquareCase {
  int64_t samples;
  int64_t inputs;
  int64_t outputs;
  int64_t height;
  int64_t width;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation = 1;

  ConvolutionCase general() const;
};

// With or without a bias and, forward, a ReLU.
SingleOperator convolution_operator(const ConvolutionCase& each,
                                    kernels::ConvolutionDirection direction, bool bias, bool relu);

// Where the request has the weights, or their gradient.
kernels::TensorSpec& weights_of(kernels::KernelRequest& request);

// Different values for each input.
std::vector<Values> random_inputs(const SingleOperator& single);

// How far a run is off, in norm, where the values are all positive, so that sums of many of them
// show what each step of theirs loses.
double distance_of_positive_sums(const SingleOperator& single,
                                 const kernels::KernelRequest& request, kernels::Kernel& kernel);

// That a kernel of own loops, which `make` makes of a problem, ends as it is told to: the problem
// is of a forward convolution of images and weights in blocks of `lanes`, without an ending.
using MakeKernel =
    std::function<std::unique_ptr<kernels::Kernel>(const kernels::ConvolutionProblem&)>;
void expect_ending(const kernels::ConvolutionProblem& problem, int64_t lanes,
                   const MakeKernel& make);

// The number of threads is as before when a test has ended.
template <typename Loops>
class TestOfLoops : public ::testing::TestWithParam<const Loops*> {
 protected:
  void TearDown() override { set_team_size(team_); }

 private:
  int team_ = team_size();
};

// The name of loops among a test's parameters: by the length of their vectors.
inline constexpr auto name_of_loops = [](const auto& parameter) {
  return "Of" + std::to_string(parameter.param->lanes);
};

}  // namespace millrace::testing
