// Convolutions as products of matrices in own loops, in vectors of 8 and of 16 floats, whatever
// this processor has: the code of both is compiled here once more, for any processor.
#include "kernels/panels/panel_convolution.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "kernels/convolution_costs.h"
#include "kernels/processor.h"
#include "testing.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/panels/panel_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::PanelLoops kLoopsOf8 = kernels::panel_code::make_panel_loops<8, 4>();
constexpr kernels::PanelLoops kLoopsOf16 = kernels::panel_code::make_panel_loops<16, 8>();

struct PanelCase {
  int64_t samples;
  int64_t inputs;
  int64_t outputs;
  int64_t height;
  int64_t width;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t dilation = 1;
};

// Images as they lie and gathered; several in a piece and in several pieces; columns left over;
// more depth than goes at a time; strides that leave pixels out, at the edge and everywhere.
constexpr PanelCase kPanelCases[] = {
    {2, 32, 48, 9, 14, 1, 1, 0},  {9, 16, 64, 7, 7, 1, 1, 0},   {1, 288, 16, 5, 5, 1, 1, 0},
    {2, 16, 80, 16, 15, 1, 2, 0}, {3, 32, 16, 8, 9, 3, 2, 1},   {2, 48, 32, 31, 30, 3, 2, 1},
    {1, 16, 16, 3, 3, 3, 1, 1},   {2, 16, 32, 12, 11, 5, 3, 2}, {1, 32, 16, 13, 12, 3, 2, 2, 2},
    {1, 16, 16, 9, 9, 2, 4, 0},   {1, 16, 16, 1, 5, 1, 2, 0},   {1, 16, 16, 8, 8, 1, 1, 1},
};

SingleOperator operator_of(const PanelCase& each, kernels::ConvolutionDirection direction) {
  using Integers = graph::Attributes::Integers;
  graph::Attributes attributes = {{"stride", Integers{each.stride, each.stride}},
                                  {"padding", Integers{each.padding, each.padding}},
                                  {"dilation", Integers{each.dilation, each.dilation}},
                                  {"groups", int64_t{1}}};
  const auto outputs_in = [&](int64_t size) {
    return (size + 2 * each.padding - each.dilation * (each.kernel - 1) - 1) / each.stride + 1;
  };
  const graph::Shape x = {each.samples, each.inputs, each.height, each.width};
  const graph::Shape w = {each.outputs, each.inputs, each.kernel, each.kernel};
  const graph::Shape y = {each.samples, each.outputs, outputs_in(each.height),
                          outputs_in(each.width)};
  if (direction == kernels::ConvolutionDirection::backward_data) {
    attributes.set("input_shape", x);
    return {"convolution_backward_data", attributes, {{y}, {w}}};
  }
  if (direction == kernels::ConvolutionDirection::backward_weights) {
    attributes.set("kernel", Integers{each.kernel, each.kernel});
    attributes.set("bias", false);
    return {"convolution_backward_weights", attributes, {{x}, {y}}};
  }
  attributes.set("relu", false);
  return {"convolution", attributes, {{x}, {w}}};
}

kernels::KernelRequest panel_request(const SingleOperator& single,
                                     const kernels::KernelOptions& options, int64_t lanes) {
  const std::string block = std::to_string(lanes);
  kernels::KernelRequest request = single.request(options, graph::Layout("aBcd" + block + "b"));
  const bool gradient = single.op.type == "convolution_backward_weights";
  (gradient ? request.outputs[0] : request.inputs[1]).layout =
      graph::Layout("ABcd" + block + "b" + block + "a");
  return request;
}

class PanelConvolution : public ::testing::TestWithParam<const kernels::PanelLoops*> {
 protected:
  void TearDown() override { set_team_size(team_); }

 private:
  int team_ = team_size();
};

TEST_P(PanelConvolution, AgreesWithTheReferenceWhateverTheThreads) {
  const kernels::PanelLoops& loops = *GetParam();
  for (const PanelCase& each : kPanelCases) {
    for (const auto direction :
         {kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
          kernels::ConvolutionDirection::backward_weights}) {
      const SingleOperator single = operator_of(each, direction);
      std::vector<Values> inputs;
      for (const graph::TensorType& type : single.inputs) {
        inputs.push_back(random_values(type, inputs.size() + 5));
      }
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

INSTANTIATE_TEST_SUITE_P(Vectors, PanelConvolution, ::testing::Values(&kLoopsOf8, &kLoopsOf16),
                         [](const auto& parameter) {
                           return "Of" + std::to_string(parameter.param->lanes);
                         });

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
  EXPECT_TRUE(refused([](auto& p) { p.bias = true; }));
  EXPECT_TRUE(refused([](auto& p) { p.relu = true; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {48, 36, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.w.shape = {42, 32, 3, 3}; }));
  EXPECT_TRUE(refused([](auto& p) { p.groups = 2; }));
  EXPECT_TRUE(refused([](auto& p) { p.halves = true; }));
}

// Where they are clearly faster, as measured: with strides, and with AVX-512 also points without
// them but for gradients of weights.
TEST(PanelConvolutionChoice, TheyAreChosenWhereTheyAreFaster) {
  using kernels::ConvolutionDirection;
  using kernels::ConvolutionMethod;
  const auto chosen = [](const PanelCase& each, ConvolutionDirection direction) {
    const kernels::KernelOptions options;
    const SingleOperator single = operator_of(each, direction);
    const auto problem = kernels::convolution_problem(single.request(options));
    return kernels::cheapest_method(problem, kernels::methods_for(problem));
  };
  const bool avx2 = kernels::vector_instructions() == kernels::VectorInstructions::avx2;
  const auto with_avx2 = avx2 ? ConvolutionMethod::panels : ConvolutionMethod::direct;
  const auto else_than_avx2 = avx2 ? ConvolutionMethod::direct : ConvolutionMethod::panels;
  const PanelCase strided_points = {8, 256, 512, 56, 56, 1, 2, 0};
  const PanelCase wide = {8, 256, 256, 28, 28, 3, 2, 1};
  const PanelCase points = {8, 256, 512, 28, 28, 1, 1, 0};
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::forward), ConvolutionMethod::direct);
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::backward_data), ConvolutionMethod::direct);
  EXPECT_EQ(chosen(strided_points, ConvolutionDirection::backward_weights), with_avx2);
  EXPECT_EQ(chosen(wide, ConvolutionDirection::forward), ConvolutionMethod::panels);
  EXPECT_EQ(chosen(wide, ConvolutionDirection::backward_weights), with_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::forward), else_than_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::backward_data), else_than_avx2);
  EXPECT_EQ(chosen(points, ConvolutionDirection::backward_weights), ConvolutionMethod::direct);
}

}  // namespace
}  // namespace millrace::testing
