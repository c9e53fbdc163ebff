#include "kernels/convolution_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "kernels/convolution_costs.h"
#include "kernels/convolution_problem.h"
#include "kernels/processor.h"
#include "testing.h"

namespace millrace::testing {
namespace {

class ChoicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static kernels::ConvolutionProblem problem(int64_t samples, int64_t channels, int64_t size) {
    kernels::ConvolutionProblem problem;
    problem.x.shape = problem.y.shape = {samples, channels, size, size};
    problem.w.shape = {channels, channels, 3, 3};
    problem.stride = problem.padding = problem.dilation = {1, 1};
    return problem;
  }

  static kernels::ConvolutionMethod choose(
      kernels::ConvolutionChoices& choices, const kernels::ConvolutionProblem& problem,
      std::vector<kernels::ConvolutionMethod> methods = kBoth) {
    return choices.choose(problem, kernels::KernelOptions(), methods);
  }

  static std::string key(const kernels::ConvolutionProblem& problem) {
    return kernels::tuning_key(problem, kernels::KernelOptions());
  }

  static inline const std::vector<kernels::ConvolutionMethod> kBoth = {
      kernels::ConvolutionMethod::direct, kernels::ConvolutionMethod::winograd};
  // By their costs, the first is for Winograd and the second for direct.
  const kernels::ConvolutionProblem large_ = problem(16, 128, 28);
  const kernels::ConvolutionProblem small_ = problem(1, 512, 4);
  std::filesystem::path directory_;
};

// As measured, by a factor of at least 1.5, on every processor with AVX-512 that was tried: many
// positions are for Winograd; few positions do not pay for bringing the weights to tiles.
TEST_F(ChoicesTest, CostsKnowTheClearCases) {
  for (const auto direction :
       {kernels::ConvolutionDirection::forward, kernels::ConvolutionDirection::backward_data,
        kernels::ConvolutionDirection::backward_weights}) {
    for (kernels::ConvolutionProblem each :
         {problem(64, 64, 56), problem(16, 128, 28), problem(28, 512, 14), problem(1, 64, 224),
          problem(64, 256, 14)}) {
      each.direction = direction;
      EXPECT_EQ(kernels::cheapest_method(each, kBoth), kernels::ConvolutionMethod::winograd)
          << each.key();
    }
    for (kernels::ConvolutionProblem each :
         {problem(1, 512, 4), problem(1, 512, 7), problem(1, 256, 7)}) {
      each.direction = direction;
      EXPECT_EQ(kernels::cheapest_method(each, kBoth), kernels::ConvolutionMethod::direct)
          << each.key();
    }
  }
}

TEST_F(ChoicesTest, MeasurementsCountMoreThanCosts) {
  kernels::ConvolutionChoices fresh({}, "here");
  EXPECT_EQ(choose(fresh, large_), kernels::ConvolutionMethod::winograd);
  EXPECT_EQ(choose(fresh, small_), kernels::ConvolutionMethod::direct);
  {
    kernels::ConvolutionChoices choices(directory_ / "choices.json", "here");
    choices.remember(key(large_), "direct");
    choices.remember(key(small_), "winograd");
  }
  kernels::ConvolutionChoices later(directory_ / "choices.json", "here");
  EXPECT_EQ(later.warning(), "");
  EXPECT_EQ(choose(later, large_), kernels::ConvolutionMethod::direct);
  EXPECT_EQ(choose(later, small_), kernels::ConvolutionMethod::winograd);
  // A remembered way that is not on offer now gives way to the plain one.
  EXPECT_EQ(choose(later, small_, {kernels::ConvolutionMethod::direct}),
            kernels::ConvolutionMethod::direct);
}

TEST_F(ChoicesTest, MeasurementsHoldForTheirProcessorAlone) {
  kernels::ConvolutionChoices here(directory_ / "choices.json", "here");
  here.remember(key(large_), "direct");
  kernels::ConvolutionChoices there(directory_ / "choices.json", "there");
  EXPECT_NE(there.warning().find("another processor (here)"), std::string::npos) << there.warning();
  EXPECT_EQ(choose(there, large_), kernels::ConvolutionMethod::winograd);
  there.remember(key(large_), "winograd");
  kernels::ConvolutionChoices again(directory_ / "choices.json", "here");
  EXPECT_EQ(again.warning(), "");
  EXPECT_EQ(choose(again, large_), kernels::ConvolutionMethod::direct);
}

// What a checkpoint brings counts most, is told on, and is no measurement of this machine.
TEST_F(ChoicesTest, WhatIsAdoptedCountsMost) {
  kernels::ConvolutionChoices choices(directory_ / "choices.json", "here");
  choices.remember(key(large_), "direct");
  choices.adopt({{key(large_), "winograd"}, {key(small_), "winograd"}});
  EXPECT_EQ(choose(choices, large_), kernels::ConvolutionMethod::winograd);
  EXPECT_EQ(choose(choices, small_), kernels::ConvolutionMethod::winograd);
  EXPECT_EQ(choices.used().at(key(small_)), "winograd");
  kernels::ConvolutionChoices later(directory_ / "choices.json", "here");
  EXPECT_EQ(choose(later, large_), kernels::ConvolutionMethod::direct);
  EXPECT_EQ(choose(later, small_), kernels::ConvolutionMethod::direct);
  EXPECT_EQ(later.used().size(), 2u);
}

TEST_F(ChoicesTest, ADamagedOrUnwritableFileOnlyWarns) {
  std::filesystem::create_directories(directory_);
  write_text(directory_ / "choices.json", "{\"version\": 3, \"processors\": 7}");
  kernels::ConvolutionChoices damaged(directory_ / "choices.json");
  EXPECT_NE(damaged.warning(), "");
  EXPECT_EQ(choose(damaged, large_), kernels::ConvolutionMethod::winograd);

  write_text(directory_ / "file", "");
  kernels::ConvolutionChoices unwritable(directory_ / "file" / "choices.json");
  unwritable.remember(key(large_), "direct");
  EXPECT_NE(unwritable.warning(), "");
  EXPECT_EQ(choose(unwritable, large_), kernels::ConvolutionMethod::direct);
}

TEST_F(ChoicesTest, MethodsAreMeasuredTogether) {
  const std::vector<double> seconds = kernels::measure_convolution(problem(1, 32, 8), kBoth);
  ASSERT_EQ(seconds.size(), 2u);
  EXPECT_GT(seconds[0], 0);
  EXPECT_LT(seconds[0], 1);
  EXPECT_GT(seconds[1], 0);  // infinite where there is no Winograd
}

// The general code for 1x1 kernels is taken only where it is faster, so the test says so.
TEST_F(ChoicesTest, GeneralDirectConvolutionAgreesWithTheReference) {
  const graph::Attributes shared = {{"stride", graph::Attributes::Integers{1, 1}},
                                    {"padding", graph::Attributes::Integers{0, 0}},
                                    {"dilation", graph::Attributes::Integers{1, 1}},
                                    {"groups", int64_t{1}}};
  graph::Attributes data = shared;
  data.set("input_shape", graph::Attributes::Integers{2, 16, 5, 7});
  graph::Attributes weights = shared;
  weights.set("kernel", graph::Attributes::Integers{1, 1});
  weights.set("bias", false);
  const std::vector<SingleOperator> operators = {
      {"convolution_backward_data", data, {{{2, 32, 5, 7}}, {{32, 16, 1, 1}}}},
      {"convolution_backward_weights", weights, {{{2, 16, 5, 7}}, {{2, 32, 5, 7}}}}};
  for (const SingleOperator& single : operators) {
    kernels::ConvolutionChoices choices({});
    kernels::KernelOptions options;
    options.choices = &choices;
    const kernels::KernelRequest plain = single.request(options);
    const kernels::ConvolutionProblem problem = kernels::convolution_problem(plain);
    if (kernels::methods_for(problem).back() != kernels::ConvolutionMethod::direct_general) {
      EXPECT_FALSE(__builtin_cpu_supports("avx512bw")) << "no general code for " << single.op.type;
      continue;
    }
    choices.adopt({{kernels::tuning_key(problem, options), "direct_general"}});
    const kernels::KernelRequest request = wished(single, options, graph::Layout("aBcd16b"));
    std::string chosen;
    const auto kernel = kernels::make_kernel(request, &chosen);
    EXPECT_EQ(chosen, "direct_general");
    std::vector<Values> inputs;
    for (const graph::TensorType& type : single.inputs) inputs.push_back(random_values(type, 5));
    const Values expected = run_reference(single, inputs).outputs[0];
    const Values got = run_kernel(*kernel, request, inputs).outputs[0];
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4);
  }
}

// Images of bf16 have Winograd only in float32; it is taken where measured as faster and where its
// copies fit.
TEST_F(ChoicesTest, WinogradInFloat32IsAChoiceForHalves) {
  const graph::Attributes window = {{"stride", graph::Attributes::Integers{1, 1}},
                                    {"padding", graph::Attributes::Integers{1, 1}},
                                    {"dilation", graph::Attributes::Integers{1, 1}},
                                    {"groups", int64_t{1}}};
  const SingleOperator single(
      "convolution", window,
      {{{2, 32, 14, 14}, graph::DataType::bf16}, {{32, 32, 3, 3}, graph::DataType::f32}});
  const auto chosen_by = [&](const char* method, int64_t limit) {
    kernels::ConvolutionChoices choices({});
    kernels::KernelOptions options;
    options.choices = &choices;
    options.workspace_limit = limit;
    const kernels::ConvolutionProblem problem =
        kernels::convolution_problem(single.request(options));
    EXPECT_EQ(kernels::methods_for(problem).size(), kernels::can_compute_bf16() ? 2u : 1u);
    choices.adopt({{kernels::tuning_key(problem, options), method}});
    std::string chosen;
    kernels::make_kernel(wished(single, options, graph::Layout("aBcd16b")), &chosen);
    return chosen;
  };
  if (!kernels::can_compute_bf16()) {
    EXPECT_THAT(chosen_by("direct", 0), ::testing::EndsWith("in f32"));
    return;
  }
  EXPECT_EQ(chosen_by("winograd_in_f32", 0), "winograd in f32");
  EXPECT_EQ(chosen_by("direct", 0), "direct");
  EXPECT_EQ(chosen_by("winograd_in_f32", 1000), "direct");
}

}  // namespace
}  // namespace millrace::testing
