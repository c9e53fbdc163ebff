#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::batch_norm {
namespace {

enum Input : size_t { kX, kScale, kBias, kRunningMean, kRunningVariance, kResidual };
enum Output : size_t { kY, kMean, kInverseDeviation };

// Operators that are joined with a norm leave one more input: with the flag `residual` what is
// added to what it makes, with `bend` prelu the slopes. It has no more than one of `residual` and
// `bend`.
constexpr size_t kSlopes = kResidual;
constexpr size_t kSlopesOfBackward = 6;

bool has_slopes(const Attributes& attributes) {
  return attributes.has("bend") && attributes.text("bend") == "prelu";
}

bool has_sixth_input(const Attributes& attributes) {
  return attributes.flag("residual") || has_slopes(attributes);
}

void expect_parameters(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  expect_inputs(inference, has_sixth_input(attributes) ? kResidual + 1 : kResidual);
  const int64_t channels = channels_of(inference.shape(kX));
  expect_channels(inference, kScale, kRunningVariance, channels);
  if (has_slopes(attributes)) expect_channels(inference, kSlopes, kSlopes, channels);
  if (attributes.flag("residual")) {
    expect_shape(inference, kResidual, inference.shape(kX), "a residual like its input,");
  }
}

std::vector<TensorType> infer_batch_norm(const Inference& inference) {
  expect_parameters(inference);
  const Shape& x = inference.shape(kX);
  const int64_t channels = channels_of(x);
  if (!inference.op.attributes.flag("inference") && elements_of(x) <= channels) {
    fail_input("needs more than one value per channel to train but gets {}; use a larger batch",
               to_string(x));
  }
  return {inference.inputs[kX], {{channels}, DataType::f32}, {{channels}, DataType::f32}};
}

std::vector<TensorType> infer_apply(const Inference& inference) {
  expect_parameters(inference);
  const bool wide = inference.op.attributes.flag("wide");
  return {{inference.shape(kX), wide ? DataType::f32 : inference.inputs[kX].dtype}};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  const bool slopes = has_slopes(inference.op.attributes);
  expect_inputs(inference, slopes ? kSlopesOfBackward + 1 : kSlopesOfBackward);
  expect_shape(inference, 1, inference.shape(0), "an input like its gradient,");
  const int64_t channels = channels_of(inference.shape(0));
  expect_channels(inference, 2, inference.inputs.size() - 1, channels);
  std::vector<TensorType> results(slopes ? 4 : 3, {{channels}, DataType::f32});
  results[0] = inference.inputs[0];
  return results;
}

void differentiate(Differentiation& d) {
  const Attributes attributes = d.op().attributes;
  const bool relu = attributes.flag("relu");
  const bool residual = attributes.flag("residual");
  const TensorId gradient = residual ? gradient_before_relu(d) : d.output_gradient(kY);
  if (residual && d.needs_gradient(kResidual)) d.set_input_gradient(kResidual, gradient);
  std::vector<size_t> results = {kX, kScale, kBias};
  if (has_slopes(attributes)) results.push_back(kSlopes);
  if (std::none_of(results.begin(), results.end(), [&](size_t i) { return d.needs_gradient(i); })) {
    return;
  }
  std::vector<TensorId> inputs = {gradient,       d.input(kX),     d.input(kScale),
                                  d.input(kBias), d.output(kMean), d.output(kInverseDeviation)};
  if (has_slopes(attributes)) inputs.push_back(d.input(kSlopes));
  Attributes added_attributes = {{"epsilon", attributes.number("epsilon")},
                                 {"relu", relu && !residual},
                                 {"fixed_statistics", attributes.flag("inference")}};
  if (attributes.has("bend")) added_attributes.set("bend", attributes.text("bend"));
  const OperatorId added =
      d.apply("batch_norm_backward", std::move(inputs), std::move(added_attributes));
  for (size_t i = 0; i < results.size(); ++i) {
    if (d.needs_gradient(results[i])) d.set_input_gradient(results[i], d.result(added, i));
  }
}

std::vector<TensorId> recompute_inputs(const Operator& op) {
  std::vector<TensorId> inputs = {op.inputs[kX], op.inputs[kScale], op.inputs[kBias],
                                  op.outputs[kMean], op.outputs[kInverseDeviation]};
  if (has_sixth_input(op.attributes)) inputs.push_back(op.inputs[kResidual]);
  return inputs;
}

// By samples each device normalises with the statistics of its own.
std::vector<ShardingSignature> shardings(const Inference& inference) {
  const auto way = [&](Sharding x, Sharding channels) {
    ShardingSignature signature = {{x, channels, channels, channels, channels},
                                   {x, channels, channels}};
    if (inference.op.attributes.flag("residual")) signature.inputs.push_back(x);
    if (has_slopes(inference.op.attributes)) signature.inputs.push_back(channels);
    return signature;
  };
  return {way(split(0), broadcast()), way(split(1), split(0))};
}

double count_all(const Inference& inference, double operations) {
  operations += inference.op.attributes.flag("relu") ? 1 : 0;
  operations += inference.op.attributes.flag("residual") ? 1 : 0;
  operations += inference.op.attributes.has("bend") ? 2 : 0;
  return operations * static_cast<double>(inference.inputs[0].elements());
}

double count_forward(const Inference& inference) {
  return count_all(inference, inference.op.attributes.flag("inference") ? 2 : 6);
}
double count_apply(const Inference& inference) { return count_all(inference, 2); }
double count_backward(const Inference& inference) {
  return count_all(inference, inference.op.attributes.flag("fixed_statistics") ? 6 : 9);
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "batch_norm",
           .infer = infer_batch_norm,
           .differentiate = differentiate,
           .has_running_statistics = true,
           .mutated_inputs = {kRunningMean, kRunningVariance},
           .in_place = {{0, kResidual}},
           .cheap = true,
           .recompute_type = "batch_norm_apply",
           .recompute_inputs = recompute_inputs,
           .halves = OperatorDefinition::Halves::follows_images,
           .can_end_in_relu = true,
           .can_add_residual = true,
           .can_bend = true,
           .shardings = shardings,
           .expansion = OperatorDefinition::Expansion::shared_statistics,
           .arithmetic = count_forward},
          {.type = "batch_norm_apply",
           .infer = infer_apply,
           .in_place = {{0, kResidual}},
           .stored_inputs = {kX, kResidual},
           .arithmetic = count_apply},
          {.type = "batch_norm_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 0}},
           .stored_inputs = {1},
           .arithmetic = count_backward}};
}

}  // namespace millrace::graph::batch_norm
