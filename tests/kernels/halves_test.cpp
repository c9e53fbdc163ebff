// Operators on bf16 against their float32 references on the same, rounded, numbers: for the shapes
// in shapes/, in the layouts that the kernels wish for, in place where that is allowed.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/half.h"
#include "base/parallel.h"
#include "case_file.h"
#include "graph/operator_definition.h"
#include "kernels/convolution_problem.h"
#include "kernels/processor.h"
#include "kernels/support/widened.h"

namespace millrace::testing {
namespace {

// A bf16 has eight bits, so a result is off by 2^-9 of it; where several are added to one in
// place, each time.
constexpr double kTolerance = 0.007;

bool is_weight(const OperatorCase& entry, size_t input) {
  const bool has_weights = entry.type == "convolution" || entry.type == "linear" ||
                           entry.type.ends_with("_backward_data");
  return input == 1 && has_weights;
}

// Images and rows in bf16; weights, parameters of channels and whatever is no number as they are.
OperatorCase in_halves(OperatorCase entry) {
  for (size_t i = 0; i < entry.inputs.size(); ++i) {
    graph::TensorType& type = entry.inputs[i];
    if (type.dtype != graph::DataType::f32 || type.shape.size() < 2 || is_weight(entry, i))
      continue;
    type.dtype = graph::DataType::bf16;
  }
  return entry;
}

// Such a case is about float32 arithmetic.
bool has_stored_input(const OperatorCase& entry) {
  return std::any_of(entry.inputs.begin(), entry.inputs.end(), [](const graph::TensorType& type) {
    return type.dtype == graph::DataType::f16 || type.dtype == graph::DataType::bf16;
  });
}

std::vector<Values> rounded(std::vector<Values> inputs, const OperatorCase& entry) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (entry.inputs[i].dtype != graph::DataType::bf16 && !is_weight(entry, i)) continue;
    for (double& value : inputs[i]) {
      value = static_cast<double>(from_bf16(to_bf16(static_cast<float>(value))));
    }
  }
  return inputs;
}

constexpr std::pair<const char*, kernels::ConvolutionAlgorithm> kVariants[] = {
    {"", kernels::ConvolutionAlgorithm::automatic},
    {"aBcd16b", kernels::ConvolutionAlgorithm::automatic},
    {"aBcd8b", kernels::ConvolutionAlgorithm::automatic},
    {"aBcd16b", kernels::ConvolutionAlgorithm::winograd}};

class Halves : public ::testing::TestWithParam<std::string> {
 protected:
  void TearDown() override { set_team_size(team_); }

  void compare(const KernelRun& actual, const KernelRun& expected) {
    for (size_t i = 0; i < expected.outputs.size(); ++i) {
      EXPECT_EQ(difference(actual.outputs[i], expected.outputs[i], kTolerance), "")
          << "output " << i;
    }
    EXPECT_TRUE(actual.padding_is_zero);
  }

 private:
  int team_ = team_size();
};

TEST_P(Halves, AgreeWithTheFloatReference) {
  for (const OperatorCase& floats : read_cases(GetParam())) {
    if (has_stored_input(floats)) continue;
    const OperatorCase entry = in_halves(floats);
    const std::vector<Values> inputs = rounded(floats.values(), entry);
    const KernelRun expected =
        run_reference(SingleOperator(floats.type, floats.attributes, floats.inputs), inputs);
    const SingleOperator single(entry.type, entry.attributes, entry.inputs);
    for (const auto& [tag, algorithm] : kVariants) {
      kernels::KernelOptions options;
      options.convolution = algorithm;
      options.threads = std::string_view(tag) == "aBcd16b" ? 3 : 1;
      set_team_size(options.threads);
      const kernels::KernelRequest request = wished(single, options, graph::Layout(tag));
      std::string chosen;
      const auto kernel = kernels::make_kernel(request, &chosen);
      SCOPED_TRACE(entry.line + "\n  " + chosen + ", images as '" + tag + "'");
      compare(run_kernel(*kernel, request, inputs), expected);
      for (const auto& pair : graph::definition_of(entry.type).in_place) {
        const auto input = static_cast<size_t>(pair.input);
        if (input >= request.inputs.size()) continue;
        const kernels::TensorSpec& from = request.inputs[input];
        const kernels::TensorSpec& to = request.outputs[static_cast<size_t>(pair.output)];
        if (!(from.type == to.type) || !(from.layout == to.layout)) continue;
        compare(run_kernel(*kernel, request, inputs, {pair.output, pair.input}), expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Halves,
                         ::testing::Values("activation", "add", "average_pool", "batch_norm",
                                           "concat", "convolution", "dropout", "flatten", "linear",
                                           "max_pool", "prelu", "scale_channels"),
                         [](const auto& parameter) { return parameter.param; });

// One convolution and its gradients on bf16, where oneDNN has Winograd for float32.
std::vector<SingleOperator> convolutions(int64_t batch) {
  using Integers = graph::Attributes::Integers;
  graph::Attributes window = {
      {"stride", Integers{1, 1}},   {"padding", Integers{1, 1}},
      {"dilation", Integers{1, 1}}, {"groups", int64_t{1}},
      {"kernel", Integers{3, 3}},   {"input_shape", Integers{batch, 32, 14, 13}}};
  const graph::TensorType x = {{batch, 32, 14, 13}, graph::DataType::bf16};
  const graph::TensorType y = {{batch, 48, 14, 13}, graph::DataType::bf16};
  const graph::TensorType w = {{48, 32, 3, 3}, graph::DataType::f32};
  graph::Attributes with_relu = window;
  with_relu.set("relu", true);
  graph::Attributes with_bias = window;
  with_bias.set("bias", true);
  return {{"convolution", with_relu, {x, w, {{48}, graph::DataType::f32}}},
          {"convolution_backward_data", window, {y, w}},
          {"convolution_backward_weights", with_bias, {x, y}}};
}

// Values that bf16 holds exactly.
std::vector<Values> inputs_of(const SingleOperator& single) {
  std::vector<Values> inputs;
  for (const graph::TensorType& type : single.inputs) {
    inputs.push_back(random_values(type, 11 + inputs.size()));
    for (double& value : inputs.back()) value = std::round(value * 64) / 64;
  }
  return inputs;
}

SingleOperator in_floats(const SingleOperator& single) {
  std::vector<graph::TensorType> inputs = single.inputs;
  for (graph::TensorType& type : inputs) type.dtype = graph::DataType::f32;
  return {single.op.type, single.op.attributes, inputs};
}

TEST(NativeHalves, WinogradWorksOnFloatCopies) {
  kernels::KernelOptions options;
  options.convolution = kernels::ConvolutionAlgorithm::winograd;
  for (const SingleOperator& single : convolutions(3)) {
    const kernels::KernelRequest request = wished(single, options, graph::Layout("aBcd16b"));
    std::string chosen;
    kernels::make_kernel(request, &chosen);
    if (kernels::can_compute_bf16()) {
      EXPECT_EQ(chosen, "winograd in f32") << single.op.type;
    } else {  // perhaps without Winograd, but in any case on copies
      EXPECT_TRUE(chosen.ends_with("in f32")) << single.op.type << " by " << chosen;
    }
  }
}

// Copies of a part of the batch at a time give the same, in less workspace.
TEST(NativeHalves, ABatchMayBeComputedInParts) {
  for (const SingleOperator& single : convolutions(6)) {
    SCOPED_TRACE(single.op.type);
    const kernels::KernelOptions options;
    const std::vector<Values> inputs = inputs_of(single);
    const KernelRun expected = run_reference(in_floats(single), inputs);
    const kernels::KernelImplementation& reference =
        kernels::kernels_of(single.op.type).implementations.back();
    const kernels::KernelRequest plain = single.request(options);
    uint64_t whole = 0;
    for (const int64_t parts : {1, 2, 3, 6}) {
      std::string refusal;
      const auto kernel = kernels::make_widened(reference, plain, &refusal, parts);
      ASSERT_NE(kernel, nullptr) << refusal;
      const KernelRun actual = run_kernel(*kernel, plain, inputs);
      for (size_t i = 0; i < expected.outputs.size(); ++i) {
        EXPECT_EQ(difference(actual.outputs[i], expected.outputs[i], kTolerance), "")
            << parts << " parts, output " << i;
      }
      if (parts == 1) whole = kernel->workspace_bytes();
      if (parts == 6) {
        EXPECT_LT(kernel->workspace_bytes(), whole / 2);
      }
    }
    std::string refusal;
    EXPECT_EQ(kernels::make_widened(reference, plain, &refusal, 4), nullptr);
    EXPECT_THAT(refusal, ::testing::HasSubstr("4 equal parts"));
  }
}

// The float32 copies of one part are bounded, whatever the batch.
TEST(NativeHalves, PartsOfABatchAreSmall) {
  const auto problem_of = [](int64_t batch, int64_t size) {
    kernels::ConvolutionProblem problem;
    problem.x = problem.y = {{batch, 64, size, size}, graph::DataType::bf16};
    problem.w = {{64, 64, 3, 3}, graph::DataType::bf16};
    problem.halves = true;
    return problem;
  };
  EXPECT_EQ(kernels::parts_in_f32(problem_of(8, 28)), 1);
  EXPECT_EQ(kernels::parts_in_f32(problem_of(8, 224)), 8);   // 24.5 MiB a sample
  EXPECT_EQ(kernels::parts_in_f32(problem_of(14, 112)), 2);  // 6.1 MiB a sample
  EXPECT_EQ(kernels::parts_in_f32(problem_of(13, 112)), 13);
  const kernels::ConvolutionProblem part = kernels::part_in_f32(problem_of(14, 112));
  EXPECT_EQ(part.x.shape, (graph::Shape{7, 64, 112, 112}));
  EXPECT_EQ(part.y.dtype, graph::DataType::f32);
  EXPECT_FALSE(part.halves);
}

// What a network in bf16 spends its time in must not go through float32 copies, where the
// processor computes in bf16; elsewhere convolutions have to.
TEST(NativeHalves, LargeTensorsAreNotCopied) {
  const graph::TensorType image = {{2, 32, 9, 9}, graph::DataType::bf16};
  const graph::TensorType channels = {{32}, graph::DataType::f32};
  const graph::TensorType weights = {{32, 32, 3, 3}, graph::DataType::f32};
  const graph::TensorType positions = {{2, 32, 4, 4}, graph::DataType::u8};
  const graph::TensorType pooled = {{2, 32, 4, 4}, graph::DataType::bf16};
  using Integers = graph::Attributes::Integers;
  const graph::Attributes window = {
      {"stride", Integers{1, 1}},   {"padding", Integers{1, 1}},
      {"dilation", Integers{1, 1}}, {"groups", int64_t{1}},
      {"kernel", Integers{3, 3}},   {"input_shape", Integers{2, 32, 9, 9}}};
  const graph::Attributes pool = {{"kernel", Integers{2, 2}},
                                  {"stride", Integers{2, 2}},
                                  {"padding", Integers{0, 0}},
                                  {"input_shape", Integers{2, 32, 9, 9}}};
  const graph::Attributes norm = {{"epsilon", 1e-5}, {"momentum", 0.1}, {"residual", true}};
  const std::vector<SingleOperator> operators = {
      {"convolution", window, {image, weights}},
      {"convolution_backward_data", window, {image, weights}},
      {"convolution_backward_weights", window, {image, image}},
      {"batch_norm", norm, {image, channels, channels, channels, channels, image}},
      {"batch_norm_apply", norm, {image, channels, channels, channels, channels, image}},
      {"batch_norm_backward",
       {{"relu", true}},
       {image, image, channels, channels, channels, channels}},
      {"relu", {}, {image}},
      {"relu_backward", {}, {image, image}},
      {"add", {}, {image, image}},
      {"add_relu_backward", {}, {image, image, image}},
      {"max_pool", pool, {image}},
      {"max_pool_backward", pool, {pooled, positions}},
      {"global_average_pool", {}, {image}},
      {"linear_backward_weights",
       {{"bias", true}},
       {{{4, 64}, graph::DataType::bf16}, {{4, 48}, graph::DataType::bf16}}}};
  for (const SingleOperator& single : operators) {
    const kernels::KernelOptions options;
    const kernels::KernelRequest request = wished(single, options, graph::Layout("aBcd16b"));
    std::string chosen;
    kernels::make_kernel(request, &chosen);
    const bool must_copy =
        !kernels::can_compute_bf16() && single.op.type.starts_with("convolution");
    if (kernels::can_compute_bf16() || must_copy) {
      EXPECT_EQ(chosen.ends_with("in f32"), must_copy) << single.op.type << " by " << chosen;
    }
    for (const kernels::TensorSpec& output : request.outputs) {
      const bool is_image =
          output.type.shape.size() == 4 && single.op.type.find("weights") == std::string::npos;
      if (is_image && output.type.dtype != graph::DataType::u8) {
        EXPECT_EQ(output.type.dtype, graph::DataType::bf16) << single.op.type;
      }
    }
  }
}

}  // namespace
}  // namespace millrace::testing
