#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::add {
namespace {

std::vector<TensorType> infer_add(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 1, inference.shape(0), "a second operand like the first,");
  return {inference.inputs[0]};
}

std::vector<TensorType> infer_add_relu_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 1, inference.shape(0), "a second gradient like the first,");
  expect_shape(inference, 2, inference.shape(0), "an output like its gradients,");
  return {inference.inputs[0]};
}

void differentiate_add(Differentiation& d) {
  if (!d.needs_gradient(0) && !d.needs_gradient(1)) return;
  const TensorId gradient = gradient_before_relu(d);
  for (size_t i = 0; i < 2; ++i) {
    if (d.needs_gradient(i)) d.set_input_gradient(i, gradient);
  }
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "add",
           .infer = infer_add,
           .differentiate = differentiate_add,
           .in_place = {{0, 0}, {0, 1}},
           .cheap = true,
           .halves = OperatorDefinition::Halves::follows,
           .joins_inputs = true,
           .is_sum = true,
           .can_end_in_relu = true,
           .shardings = shard_linear_map},
          {.type = "add_relu_backward",
           .infer = infer_add_relu_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 0}, {0, 1}},
           .stored_inputs = {2}}};
}

}  // namespace millrace::graph::add
