#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::activation {
namespace {

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 1, inference.shape(0), "a tensor like the gradient");
  return {inference.inputs[0]};
}

void differentiate_by(Differentiation& d, TensorId read) {
  if (!d.needs_gradient(0)) return;
  const std::string type = d.op().type + "_backward";
  d.set_input_gradient(0, d.result(d.apply(type, {d.output_gradient(0), read})));
}

void by_output(Differentiation& d) { differentiate_by(d, d.output(0)); }

// Where two inputs have the same output but not the same slope.
void by_input(Differentiation& d) { differentiate_by(d, d.input(0)); }

OperatorDefinition forward(std::string_view type, void (*differentiate)(Differentiation&)) {
  return {.type = type,
          .infer = same_as_first,
          .differentiate = differentiate,
          .in_place = {{0, 0}},
          .cheap = true,
          .halves = OperatorDefinition::Halves::follows,
          .shardings = shard_by_sample_or_channel};
}

OperatorDefinition backward(std::string_view type) {
  return {.type = type,
          .infer = infer_backward,
          .gradient = OperatorDefinition::Gradient::of_inputs,
          .in_place = {{0, 0}},
          .stored_inputs = {1}};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  OperatorDefinition relu = forward("relu", by_output);
  relu.is_relu = true;
  OperatorDefinition relu6 = forward("relu6", by_output);
  relu6.is_bend = true;
  OperatorDefinition silu = forward("silu", by_input);
  silu.is_bend = true;
  OperatorDefinition hardswish = forward("hardswish", by_input);
  hardswish.is_bend = true;
  OperatorDefinition relu_backward = backward("relu_backward");
  relu_backward.of_sum = "add_relu_backward";
  return {relu,
          relu6,
          forward("sigmoid", by_output),
          forward("hardsigmoid", by_output),
          forward("tanh", by_output),
          silu,
          hardswish,
          relu_backward,
          backward("relu6_backward"),
          backward("sigmoid_backward"),
          backward("hardsigmoid_backward"),
          backward("tanh_backward"),
          backward("silu_backward"),
          backward("hardswish_backward")};
}

}  // namespace millrace::graph::activation
