// A convolution with a norm of running statistics behind it, as evaluations have it.
#include "graph/operators/shapes.h"

namespace millrace::graph::normalised_convolution {
namespace {

// The norm's parameters and statistics follow the weights, then what the norm has joined: with the
// flag `residual` what is added, with `bend` prelu the slopes.
enum Input : size_t { kX, kWeights, kScale, kBias, kMean, kVariance, kBehind };

const OperatorDefinition& convolution() { return definition_of("convolution"); }

Inference of_convolution(const Inference& inference) {
  return {inference.op, {inference.inputs.at(kX), inference.inputs.at(kWeights)}};
}

std::vector<TensorType> infer(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  const bool residual = attributes.flag("residual");
  const bool slopes = attributes.has("bend") && attributes.text("bend") == "prelu";
  expect_inputs(inference, residual || slopes ? kBehind + 1 : kBehind);
  std::vector<TensorType> results = convolution().infer(of_convolution(inference));
  const int64_t channels = channels_of(results[0].shape);
  expect_channels(inference, kScale, slopes ? kBehind : kVariance, channels);
  if (residual) expect_shape(inference, kBehind, results[0].shape, "a residual like its result,");
  return results;
}

double count(const Inference& inference) {
  const auto y = static_cast<double>(infer(inference)[0].elements());
  double operations = 2;
  for (const char* more : {"residual", "relu"}) {
    operations += inference.op.attributes.flag(more) ? 1 : 0;
  }
  operations += inference.op.attributes.has("bend") ? 2 : 0;
  const double products = 2 * y * static_cast<double>(inference.inputs[kWeights].elements()) /
                          static_cast<double>(inference.shape(kWeights)[0]);
  return products + operations * y;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "normalised_convolution", .infer = infer, .arithmetic = count}};
}

}  // namespace millrace::graph::normalised_convolution
