#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::linear {
namespace {

void expect_features(int64_t features, int64_t wanted) {
  if (features != wanted) {
    fail_input("needs rows of {} features here but gets {}", wanted, features);
  }
}

// That of its input, or what the attribute "to" says.
DataType output_type(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  return attributes.has("to") ? static_cast<DataType>(attributes.integer("to"))
                              : inference.inputs[0].dtype;
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2, 3);
  expect_matrix(inference, 0);
  expect_matrix(inference, 1);
  const Shape& x = inference.shape(0);
  const Shape& w = inference.shape(1);
  expect_features(x[1], w[1]);
  if (inference.inputs.size() == 3) expect_shape(inference, 2, {w[0]}, "a bias");
  return {{{x[0], w[0]}, output_type(inference)}};
}

std::vector<TensorType> infer_backward_data(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  expect_matrix(inference, 1);
  expect_features(inference.shape(0)[1], inference.shape(1)[0]);
  return {{{inference.shape(0)[0], inference.shape(1)[1]}, inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_backward_weights(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  expect_matrix(inference, 1);
  const Shape& x = inference.shape(0);
  const Shape& dy = inference.shape(1);
  expect_shape(inference, 1, {x[0], dy[1]}, "a gradient");
  std::vector<TensorType> results = {{{dy[1], x[1]}, DataType::f32}};
  if (inference.op.attributes.flag("bias")) results.push_back({{dy[1]}, DataType::f32});
  return results;
}

void differentiate(Differentiation& d) {
  const bool wants_bias = d.op().inputs.size() == 3 && d.needs_gradient(2);
  const bool wants_weights = d.needs_gradient(1);
  if (!wants_weights && !wants_bias && !d.needs_gradient(0)) return;
  TensorId gradient = gradient_before_relu(d);
  const DataType type = d.graph().tensor(d.input(0)).type.dtype;
  if (d.graph().tensor(gradient).type.dtype != type) {
    gradient = d.result(d.apply("cast", {gradient}, {{"to", static_cast<int64_t>(type)}}));
  }
  if (wants_weights || wants_bias) {
    const OperatorId added =
        d.apply("linear_backward_weights", {d.input(0), gradient}, {{"bias", wants_bias}});
    if (wants_weights) d.set_input_gradient(1, d.result(added));
    if (wants_bias) d.set_input_gradient(2, d.result(added, 1));
  }
  if (d.needs_gradient(0)) {
    d.set_input_gradient(0, d.result(d.apply("linear_backward_data", {gradient, d.input(1)})));
  }
}

double multiply_adds(int64_t elements, int64_t features) {
  return 2.0 * static_cast<double>(elements) * static_cast<double>(features);
}

double count_forward(const Inference& inference) {
  const int64_t outputs = inference.shape(0)[0] * inference.shape(1)[0];
  return multiply_adds(outputs, inference.shape(1)[1]) +
         bias_and_relu(inference) * static_cast<double>(outputs);
}

double count_backward_data(const Inference& inference) {
  return multiply_adds(inference.inputs[0].elements(), inference.shape(1)[1]);
}

double count_backward_weights(const Inference& inference) {
  const int64_t dy = inference.inputs[1].elements();
  return multiply_adds(dy, inference.shape(0)[1]) +
         (inference.op.attributes.flag("bias") ? static_cast<double>(dy) : 0);
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "linear",
           .infer = infer_forward,
           .differentiate = differentiate,
           .weights = OperatorDefinition::Weights::dense,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::computes,
           .can_widen = true,
           .can_end_in_relu = true,
           .shardings = shard_weighted_sum,
           .arithmetic = count_forward},
          {.type = "linear_backward_data",
           .infer = infer_backward_data,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .weights = OperatorDefinition::Weights::dense,
           .arithmetic = count_backward_data},
          {.type = "linear_backward_weights",
           .infer = infer_backward_weights,
           .gradient = OperatorDefinition::Gradient::of_weights,
           .weights = OperatorDefinition::Weights::dense,
           .arithmetic = count_backward_weights}};
}

}  // namespace millrace::graph::linear
