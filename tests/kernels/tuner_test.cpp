#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "kernels/convolution_problem.h"
#include "kernels/convolution_tuner.h"
#include "kernels/processor.h"
#include "testing.h"

namespace millrace::testing {
namespace {

class TunerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::path(::testing::TempDir()) /
                 ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Two ways with these times; counts how often either is measured.
  std::vector<ConvolutionTuner::Candidate> ways(double plain, double other) {
    return {{"direct", [this, plain] { return ++measurements_, plain; }},
            {"winograd", [this, other] { return ++measurements_, other; }}};
  }

  std::filesystem::path directory_;
  int measurements_ = 0;
};

TEST_F(TunerTest, MeasuresOnceAndPrefersThePlainWayUnlessClearlySlower) {
  ConvolutionTuner tuner({});
  EXPECT_EQ(tuner.choose("a", ways(1.0, 0.5)), 1u);
  EXPECT_EQ(tuner.choose("b", ways(1.0, 0.97)), 0u);
  EXPECT_EQ(tuner.choose("a", ways(1.0, 9.0)), 1u);
  EXPECT_EQ(measurements_, 4);
  EXPECT_EQ(tuner.measured(), 2);
}

TEST_F(TunerTest, AnotherProcessFindsTheChoices) {
  {
    ConvolutionTuner tuner(directory_ / "choices.json");
    tuner.choose("a", ways(1.0, 0.5));
    tuner.save();
  }
  ConvolutionTuner tuner(directory_ / "choices.json");
  EXPECT_EQ(tuner.choose("a", ways(0.1, 9.0)), 1u);
  EXPECT_EQ(measurements_, 2);
  // A remembered way that is not on offer now gives way to the plain one.
  auto fewer = ways(1.0, 0.5);
  fewer.pop_back();
  EXPECT_EQ(tuner.choose("a", fewer), 0u);
}

TEST_F(TunerTest, ChoicesOfAnotherProcessCountMore) {
  ConvolutionTuner first({});
  first.choose("a", ways(1.0, 0.5));
  {
    ConvolutionTuner second(directory_ / "choices.json");
    second.choose("a", ways(0.5, 1.0));
    second.choose("b", ways(1.0, 0.5));
    second.save();
    second.adopt(first.choices(), first.processor());
    EXPECT_EQ(second.choose("a", ways(0.5, 1.0)), 1u);
    EXPECT_EQ(second.choose("b", ways(0.5, 1.0)), 1u);
    EXPECT_EQ(measurements_, 6);
    second.save();
  }
  ConvolutionTuner later(directory_ / "choices.json");
  EXPECT_EQ(later.choose("a", ways(0.5, 1.0)), 1u);
}

// A home directory may be shared by unlike machines, or carried to another.
TEST_F(TunerTest, ChoicesOfAnotherProcessorAreKeptButNotUsed) {
  const auto path = directory_ / "choices.json";
  {
    ConvolutionTuner tuner(path, "first");
    tuner.choose("a", ways(1.0, 0.5));
    tuner.save();
    EXPECT_EQ(tuner.warning(), "");
  }
  {
    ConvolutionTuner tuner(path, "second");
    EXPECT_NE(tuner.warning().find("another processor (first)"), std::string::npos);
    EXPECT_EQ(tuner.choose("a", ways(0.5, 1.0)), 0u);
    EXPECT_EQ(measurements_, 4);
    tuner.save();
  }
  for (const auto& [processor, choice] : {std::pair("first", 1u), std::pair("second", 0u)}) {
    ConvolutionTuner tuner(path, processor);
    EXPECT_EQ(tuner.warning(), "");
    EXPECT_EQ(tuner.choose("a", ways(1.0, 1.0)), choice);
  }
  EXPECT_EQ(measurements_, 4);
}

// Ranks of one job compute alike, whatever they run on; what is kept holds for one processor.
TEST_F(TunerTest, AdoptedChoicesOfAnotherProcessorAreNotKept) {
  const auto path = directory_ / "choices.json";
  {
    ConvolutionTuner tuner(path, "second");
    tuner.choose("b", ways(1.0, 0.5));
    tuner.adopt({{"a", "winograd"}}, "first");
    EXPECT_EQ(tuner.choose("a", ways(0.5, 1.0)), 1u);
    tuner.save();
  }
  ConvolutionTuner later(path, "second");
  EXPECT_EQ(later.choices(), (ConvolutionTuner::Choices{{"b", "winograd"}}));
}

TEST_F(TunerTest, TheProcessorIsTheOneOfTheSystem) {
  const std::string system = read_text("/proc/cpuinfo");
  const std::string own = processor_description();
  const std::string model = own.substr(0, own.find(", isa "));
  EXPECT_NE(system.find(model), std::string::npos) << own;
}

TEST_F(TunerTest, ADamagedOrUnwritableFileOnlyWarns) {
  std::filesystem::create_directories(directory_);
  write_text(directory_ / "choices.json", "{\"version\": 3, \"processors\": 7}");
  ConvolutionTuner damaged(directory_ / "choices.json");
  EXPECT_NE(damaged.warning(), "");
  EXPECT_EQ(damaged.choose("a", ways(1.0, 0.5)), 1u);

  write_text(directory_ / "file", "");
  ConvolutionTuner unwritable(directory_ / "file" / "choices.json");
  unwritable.choose("a", ways(1.0, 0.5));
  unwritable.save();
  EXPECT_NE(unwritable.warning(), "");
}

// The general code for 1x1 kernels is taken only where measured as faster, so the test says so.
TEST_F(TunerTest, GeneralDirectConvolutionAgreesWithTheReference) {
  const Attributes shared = {{"stride", Attributes::Integers{1, 1}},
                             {"padding", Attributes::Integers{0, 0}},
                             {"dilation", Attributes::Integers{1, 1}},
                             {"groups", int64_t{1}}};
  Attributes data = shared;
  data.set("input_shape", Attributes::Integers{2, 16, 5, 7});
  Attributes weights = shared;
  weights.set("kernel", Attributes::Integers{1, 1});
  weights.set("bias", false);
  const std::vector<SingleOperator> operators = {
      {"convolution_backward_data", data, {{{2, 32, 5, 7}}, {{32, 16, 1, 1}}}},
      {"convolution_backward_weights", weights, {{{2, 16, 5, 7}}, {{2, 32, 5, 7}}}}};
  for (const SingleOperator& single : operators) {
    ConvolutionTuner tuner({});
    KernelOptions options;
    options.tuner = &tuner;
    const KernelRequest plain = single.request(options);
    const ConvolutionProblem problem = convolution_problem(plain);
    if (methods_for(problem).back() != ConvolutionMethod::direct_general) {
      EXPECT_FALSE(__builtin_cpu_supports("avx512bw")) << "no general code for " << single.op.type;
      continue;
    }
    tuner.choose(tuning_key(problem, options),
                 {{"direct", [] { return 2.0; }}, {"direct_general", [] { return 1.0; }}});
    const KernelRequest request = wished(single, options, Layout("aBcd16b"));
    std::string chosen;
    const auto kernel = make_kernel(request, &chosen);
    EXPECT_EQ(chosen, "direct_general");
    std::vector<Values> inputs;
    for (const TensorType& type : single.inputs) inputs.push_back(random_values(type, 5));
    const Values expected = run_reference(single, inputs).outputs[0];
    const Values got = run_kernel(*kernel, request, inputs).outputs[0];
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4);
  }
}

// Images of bf16 have Winograd only in float32; it is taken where measured as faster and where its
// copies fit.
TEST_F(TunerTest, WinogradInFloat32IsAChoiceForHalves) {
  ASSERT_TRUE(can_compute_bf16());
  const Attributes window = {{"stride", Attributes::Integers{1, 1}},
                             {"padding", Attributes::Integers{1, 1}},
                             {"dilation", Attributes::Integers{1, 1}},
                             {"groups", int64_t{1}}};
  const SingleOperator single("convolution", window,
                              {{{2, 32, 14, 14}, DataType::bf16}, {{32, 32, 3, 3}, DataType::f32}});
  const auto chosen_by = [&](const char* method, double seconds, int64_t limit) {
    ConvolutionTuner tuner({});
    KernelOptions options;
    options.tuner = &tuner;
    options.workspace_limit = limit;
    const ConvolutionProblem problem = convolution_problem(single.request(options));
    EXPECT_EQ(methods_for(problem).size(), 2u);
    tuner.choose(tuning_key(problem, options),
                 {{"direct", [] { return 2.0; }}, {method, [=] { return seconds; }}});
    std::string chosen;
    make_kernel(wished(single, options, Layout("aBcd16b")), &chosen);
    return chosen;
  };
  EXPECT_EQ(chosen_by("winograd_in_f32", 1.0, 0), "winograd in f32");
  EXPECT_EQ(chosen_by("winograd_in_f32", 3.0, 0), "direct");
  EXPECT_EQ(chosen_by("winograd_in_f32", 1.0, 1000), "direct");

  ConvolutionTuner tuner({});
  KernelOptions options;
  options.tuner = &tuner;
  make_kernel(wished(single, options, Layout("aBcd16b")));
  EXPECT_EQ(tuner.measured(), 1);
}

}  // namespace
}  // namespace millrace::testing
