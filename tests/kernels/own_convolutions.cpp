#include "own_convolutions.h"

#include <cmath>

namespace millrace::testing {

ConvolutionCase SquareCase::general() const {
  return {samples,
          inputs,
          outputs,
          {height, width},
          {kernel, kernel},
          {stride, stride},
          {padding, padding},
          {dilation, dilation}};
}

SingleOperator convolution_operator(const ConvolutionCase& each,
                                    kernels::ConvolutionDirection direction, bool bias, bool relu) {
  graph::Attributes attributes = {{"stride", each.stride},
                                  {"padding", each.padding},
                                  {"dilation", each.dilation},
                                  {"groups", each.groups}};
  const auto outputs_along = [&](size_t axis) {
    const int64_t reach = each.dilation[axis] * (each.kernel[axis] - 1) + 1;
    return (each.image[axis] + 2 * each.padding[axis] - reach) / each.stride[axis] + 1;
  };
  const graph::Shape x = {each.samples, each.inputs, each.image[0], each.image[1]};
  const graph::Shape w = {each.outputs, each.inputs / each.groups, each.kernel[0], each.kernel[1]};
  const graph::Shape y = {each.samples, each.outputs, outputs_along(0), outputs_along(1)};
  if (direction == kernels::ConvolutionDirection::backward_data) {
    attributes.set("input_shape", x);
    return {"convolution_backward_data", attributes, {{y}, {w}}};
  }
  if (direction == kernels::ConvolutionDirection::backward_weights) {
    attributes.set("kernel", each.kernel);
    attributes.set("bias", bias);
    return {"convolution_backward_weights", attributes, {{x}, {y}}};
  }
  attributes.set("relu", relu);
  if (!bias) return {"convolution", attributes, {{x}, {w}}};
  return {"convolution", attributes, {{x}, {w}, {{each.outputs}}}};
}

kernels::TensorSpec& weights_of(kernels::KernelRequest& request) {
  const bool gradient = request.op.type == "convolution_backward_weights";
  return gradient ? request.outputs[0] : request.inputs[1];
}

std::vector<Values> random_inputs(const SingleOperator& single) {
  std::vector<Values> inputs;
  for (const graph::TensorType& type : single.inputs) {
    inputs.push_back(random_values(type, inputs.size() + 5));
  }
  return inputs;
}

double distance_of_positive_sums(const SingleOperator& single,
                                 const kernels::KernelRequest& request, kernels::Kernel& kernel) {
  std::vector<Values> inputs;
  for (const graph::TensorType& type : single.inputs) {
    inputs.push_back(random_values(type, inputs.size() + 5, true));
  }
  const Values expected = run_reference(single, inputs).outputs[0];
  const Values actual = run_kernel(kernel, request, inputs).outputs[0];
  double off = 0;
  double whole = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    off += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    whole += expected[i] * expected[i];
  }
  return std::sqrt(off / whole);
}

namespace {

Values run_with(kernels::Kernel& kernel, const std::vector<Values>& values, size_t outputs) {
  std::vector<std::vector<float>> inputs;
  for (const Values& each : values) inputs.emplace_back(each.begin(), each.end());
  std::vector<std::byte*> addresses;
  for (auto& input : inputs) addresses.push_back(reinterpret_cast<std::byte*>(input.data()));
  std::vector<float> result(outputs);
  auto* const result_address = reinterpret_cast<std::byte*>(result.data());
  std::vector<std::byte> workspace(kernel.workspace_bytes());
  kernel.run({addresses, {&result_address, 1}, workspace.data(), nullptr});
  return {result.begin(), result.end()};
}

}  // namespace

void expect_ending(const kernels::ConvolutionProblem& problem, int64_t lanes,
                   const MakeKernel& make) {
  const graph::TensorType channels = {{problem.y.shape[1]}, graph::DataType::f32};
  const Values factor = random_values(channels, 3);
  const Values offset = random_values(channels, 4);
  const Values residual = random_values(problem.y, 5);
  const std::vector<Values> inputs = {random_values(problem.x, 1), random_values(problem.w, 2)};
  const Values plain = run_with(*make(problem), inputs, residual.size());
  const auto plane = static_cast<size_t>(problem.y.shape[2] * problem.y.shape[3] * lanes);
  for (const bool adds : {false, true}) {
    for (const bool relu : {false, true}) {
      kernels::ConvolutionProblem ended = problem;
      ended.norm = true;
      ended.residual = adds;
      ended.relu = relu;
      std::vector<Values> all = {inputs[0], inputs[1], factor, offset};
      if (adds) all.push_back(residual);
      const Values got = run_with(*make(ended), all, residual.size());
      Values expected(plain.size());
      for (size_t i = 0; i < plain.size(); ++i) {
        const size_t block = i / plane * static_cast<size_t>(lanes) % factor.size();
        const size_t channel = block + i % static_cast<size_t>(lanes);
        double value = plain[i] * factor[channel] + offset[channel];
        if (adds) value += residual[i];
        expected[i] = relu && value < 0 ? 0 : value;
      }
      EXPECT_EQ(difference(got, expected, 1e-5), "") << "residual " << adds << ", ReLU " << relu;
    }
  }
}

}  // namespace millrace::testing
