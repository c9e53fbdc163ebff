// Winograd's method in own loops, in vectors of 8 and of 16 floats, whatever this processor has:
// the code of both is compiled here once more, for any processor.
#include "kernels/winograd/tiled_convolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/processor.h"
#include "testing.h"

// Wide vectors are passed between functions of this file alone.
#pragma GCC diagnostic ignored "-Wpsabi"
#include "kernels/winograd/tile_code.h"

namespace millrace::testing {
namespace {

constexpr kernels::TileLoops kLoopsOf8 = kernels::tile_code::make_tile_loops<8, 6>();
constexpr kernels::TileLoops kLoopsOf16 = kernels::tile_code::make_tile_loops<16, 12>();

struct TiledCase {
  int64_t samples;
  int64_t inputs;
  int64_t outputs;
  int64_t height;
  int64_t width;
  int64_t padding;
};

// One tile and less, edges on all sides, panels that are half full, more depth than goes at a time,
// more tiles than a piece.
constexpr TiledCase kTiledCases[] = {
    {1, 16, 16, 3, 3, 1}, {2, 32, 48, 9, 14, 1}, {1, 16, 32, 12, 7, 0},
    {2, 32, 16, 6, 5, 2}, {1, 288, 16, 8, 8, 1}, {3, 16, 16, 26, 22, 1},
};

SingleOperator operator_of(const TiledCase& each, kernels::ConvolutionDirection direction,
                           bool bias) {
  const graph::Attributes::Integers ones = {1, 1};
  graph::Attributes attributes = {
      {"stride", ones},
      {"padding", graph::Attributes::Integers{each.padding, each.padding}},
      {"dilation", ones},
      {"groups", int64_t{1}}};
  const graph::Shape x = {each.samples, each.inputs, each.height, each.width};
  const graph::Shape w = {each.outputs, each.inputs, 3, 3};
  const int64_t grown = 2 * each.padding - 2;
  const graph::Shape y = {each.samples, each.outputs, each.height + grown, each.width + grown};
  if (direction == kernels::ConvolutionDirection::backward_data) {
    attributes.set("input_shape", x);
    return {"convolution_backward_data", attributes, {{y}, {w}}};
  }
  if (direction == kernels::ConvolutionDirection::backward_weights) {
    attributes.set("kernel", graph::Attributes::Integers{3, 3});
    attributes.set("bias", bias);
    return {"convolution_backward_weights", attributes, {{x}, {y}}};
  }
  attributes.set("relu", bias);
  if (!bias) return {"convolution", attributes, {{x}, {w}}};
  return {"convolution", attributes, {{x}, {w}, {{each.outputs}}}};
}

kernels::KernelRequest tiled_request(const SingleOperator& single,
                                     const kernels::KernelOptions& options,
                                     const kernels::TileLoops& loops) {
  kernels::KernelRequest request = single.request(options, kernels::tiled_images(loops));
  const bool gradient = single.op.type == "convolution_backward_weights";
  (gradient ? request.outputs[0] : request.inputs[1]).layout = kernels::tiled_weights(loops);
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

class TiledConvolution : public ::testing::TestWithParam<const kernels::TileLoops*> {
 protected:
  void TearDown() override { set_team_size(team_); }

 private:
  int team_ = team_size();
};

TEST_P(TiledConvolution, AgreesWithTheReference) {
  const kernels::TileLoops& loops = *GetParam();
  for (const TiledCase& each : kTiledCases) {
    for (const auto direction :
         {kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
          kernels::ConvolutionDirection::backward_weights}) {
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
          std::vector<Values> inputs;
          for (const graph::TensorType& type : single.inputs) {
            inputs.push_back(random_values(type, inputs.size() + 5));
          }
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

INSTANTIATE_TEST_SUITE_P(Vectors, TiledConvolution, ::testing::Values(&kLoopsOf8, &kLoopsOf16),
                         [](const auto& parameter) {
                           return "Of" + std::to_string(parameter.param->lanes);
                         });

TEST(TiledConvolutionChoice, OnlyItsShapesAreServed) {
  const TiledCase usual = {2, 32, 48, 9, 14, 1};
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
      operator_of({2, 64, 64, 28, 28, 1}, kernels::ConvolutionDirection::forward, false);
  std::string chosen;
  kernels::make_kernel(wished(single, options, graph::Layout("aBcd8b")), &chosen);
  EXPECT_EQ(chosen, "winograd tiles");
}

}  // namespace
}  // namespace millrace::testing
