// Batch normalisation over the samples of all members. batch_norm_statistics gives the mean and the
// sum of squared deviations of each channel on one member; gathered they are merged by
// batch_norm_synchronised, which is batch_norm otherwise. Attributes: counts, the values per
// channel on each member; member and members.
#include <numeric>

#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace::graph::batch_norm_synchronised {
namespace {

enum Input : size_t { kX, kScale, kBias, kRunningMean, kRunningVariance, kStatistics, kResidual };
enum Output : size_t { kY, kMean, kInverseDeviation };

int64_t count_of(const Attributes& attributes) {
  const auto& counts = attributes.integers("counts");
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

TensorType values(int64_t count) { return {{count}, DataType::f32}; }

std::vector<TensorType> infer_statistics(const Inference& inference) {
  expect_inputs(inference, 1);
  return {values(2 * channels_of(inference.shape(0)))};
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  const bool residual = attributes.flag("residual");
  expect_inputs(inference, residual ? 7 : 6);
  const int64_t channels = channels_of(inference.shape(kX));
  expect_channels(inference, kScale, kRunningVariance, channels);
  const auto members = static_cast<int64_t>(attributes.integers("counts").size());
  expect_shape(inference, kStatistics, {members * 2 * channels}, "every member's statistics");
  if (residual)
    expect_shape(inference, kResidual, inference.shape(kX), "a residual like its input,");
  if (count_of(attributes) < 2) {
    fail_input("needs more than one value per channel to train; use a larger batch");
  }
  return {inference.inputs[kX], values(channels), values(channels)};
}

int64_t expect_gradient(const Inference& inference) {
  expect_shape(inference, 1, inference.shape(0), "an input like its gradient,");
  const int64_t channels = channels_of(inference.shape(0));
  expect_channels(inference, 2, 5, channels);
  return channels;
}

std::vector<TensorType> infer_backward_sums(const Inference& inference) {
  expect_inputs(inference, 6);
  const int64_t channels = expect_gradient(inference);
  return {values(2 * channels), values(channels), values(channels)};
}

std::vector<TensorType> infer_backward_apply(const Inference& inference) {
  expect_inputs(inference, 7);
  const int64_t channels = expect_gradient(inference);
  expect_shape(inference, 6, {2 * channels}, "the sums of all members,");
  inference.op.attributes.integer("count");
  return {inference.inputs[0]};
}

void differentiate(Differentiation& d) {
  const Attributes attributes = d.op().attributes;
  const bool residual = attributes.flag("residual");
  const TensorId gradient = residual ? gradient_before_relu(d) : d.output_gradient(kY);
  if (residual && d.needs_gradient(kResidual)) d.set_input_gradient(kResidual, gradient);
  const bool relu = attributes.flag("relu") && !residual;
  std::vector<TensorId> inputs = {gradient,       d.input(kX),     d.input(kScale),
                                  d.input(kBias), d.output(kMean), d.output(kInverseDeviation)};
  const OperatorId sums = d.apply("batch_norm_backward_sums", inputs, {{"relu", relu}});
  if (d.needs_gradient(kScale)) d.set_input_gradient(kScale, d.result(sums, 1));
  if (d.needs_gradient(kBias)) d.set_input_gradient(kBias, d.result(sums, 2));
  if (!d.needs_gradient(kX)) return;
  const OperatorId total = d.apply(
      "all_reduce", {d.result(sums)},
      {{"member", attributes.integer("member")}, {"members", attributes.integer("members")}});
  inputs.push_back(d.result(total));
  const OperatorId applied = d.apply("batch_norm_backward_apply", std::move(inputs),
                                     {{"relu", relu}, {"count", count_of(attributes)}});
  d.set_input_gradient(kX, d.result(applied));
}

std::vector<TensorId> recompute_inputs(const Operator& op) {
  std::vector<TensorId> inputs = {op.inputs[kX], op.inputs[kScale], op.inputs[kBias],
                                  op.outputs[kMean], op.outputs[kInverseDeviation]};
  if (op.attributes.flag("residual")) inputs.push_back(op.inputs[kResidual]);
  return inputs;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "batch_norm_statistics",
           .infer = infer_statistics,
           .halves = OperatorDefinition::Halves::follows_images,
           .arithmetic = per_element<4>},
          {.type = "batch_norm_synchronised",
           .infer = infer_forward,
           .differentiate = differentiate,
           .has_running_statistics = true,
           .alone = {"batch_norm", kStatistics},
           .mutated_inputs = {kRunningMean, kRunningVariance},
           .in_place = {{0, kResidual}},
           .cheap = true,
           .recompute_type = "batch_norm_apply",
           .recompute_inputs = recompute_inputs,
           .halves = OperatorDefinition::Halves::follows_images,
           .can_end_in_relu = true,
           .can_add_residual = true,
           .arithmetic = per_element<2>},
          {.type = "batch_norm_backward_sums",
           .infer = infer_backward_sums,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .stored_inputs = {1},
           .arithmetic = per_element<4>},
          {.type = "batch_norm_backward_apply",
           .infer = infer_backward_apply,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 0}},
           .stored_inputs = {1},
           .arithmetic = per_element<5>}};
}

}  // namespace millrace::graph::batch_norm_synchronised
