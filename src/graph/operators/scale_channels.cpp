#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::scale_channels {
namespace {

void expect_factors(const Inference& inference, size_t input, const Shape& x) {
  expect_shape(inference, input, {x[0], x[1], 1, 1}, "a factor for each channel,");
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_image(inference, 0);
  expect_factors(inference, 1, inference.shape(0));
  return {inference.inputs[0]};
}

// Of the gradient, the image and the factors.
std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_image(inference, 0);
  expect_shape(inference, 1, inference.shape(0), "an image like the gradient,");
  expect_factors(inference, 2, inference.shape(0));
  return {inference.inputs[0], {inference.shape(2), inference.inputs[0].dtype}};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0) && !d.needs_gradient(1)) return;
  const OperatorId added =
      d.apply("scale_channels_backward", {d.output_gradient(0), d.input(0), d.input(1)});
  for (size_t i = 0; i < 2; ++i) {
    if (d.needs_gradient(i)) d.set_input_gradient(i, d.result(added, i));
  }
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "scale_channels",
           .infer = infer_forward,
           .differentiate = differentiate,
           .in_place = {{0, 0}},
           .cheap = true,
           .halves = OperatorDefinition::Halves::follows,
           .joins_inputs = true,
           .shardings = shard_by_sample_or_channel},
          {.type = "scale_channels_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 0}},
           .stored_inputs = {1},
           .arithmetic = per_element<3>}};
}

}  // namespace millrace::graph::scale_channels
