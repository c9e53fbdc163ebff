#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::average_pool {
namespace {

std::vector<TensorType> infer_average(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_image(inference, 0);
  const Shape& x = inference.shape(0);
  return {{slide(x, x[1], pool_window(inference.op.attributes)), inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_global(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_image(inference, 0);
  const Shape& x = inference.shape(0);
  return {{{x[0], x[1], 1, 1}, inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_adaptive(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_image(inference, 0);
  const Shape& x = inference.shape(0);
  const auto output = pair_of(inference.op.attributes, "output", 1);
  return {{{x[0], x[1], output[0], output[1]}, inference.inputs[0].dtype}};
}

template <std::vector<TensorType> (*forward)(const Inference&)>
std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 1);
  const TensorType dx = {shape_attribute(inference.op.attributes, "input_shape"),
                         inference.inputs[0].dtype};
  const auto dy = forward({inference.op, {dx}});
  expect_shape(inference, 0, dy.at(0).shape, "a gradient");
  return {dx};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  Attributes attributes = d.op().attributes;
  attributes.set("input_shape", d.graph().tensor(d.input(0)).type.shape);
  const std::string type = d.op().type + "_backward";
  const OperatorId added = d.apply(type, {d.output_gradient(0)}, std::move(attributes));
  d.set_input_gradient(0, d.result(added));
}

double count_window(const Inference& inference) {
  const double area = static_cast<double>(pool_window(inference.op.attributes).area());
  const bool is_backward = inference.op.attributes.has("input_shape");
  const TensorType pooled = is_backward ? inference.inputs[0] : infer_average(inference).at(0);
  return static_cast<double>(pooled.elements()) * area;
}

double count_image(const Inference& inference) {
  const Attributes& attributes = inference.op.attributes;
  return static_cast<double>(attributes.has("input_shape")
                                 ? elements_of(attributes.integers("input_shape"))
                                 : inference.inputs[0].elements());
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "average_pool",
           .infer = infer_average,
           .differentiate = differentiate,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shard_by_sample_or_channel,
           .arithmetic = count_window},
          {.type = "global_average_pool",
           .infer = infer_global,
           .differentiate = differentiate,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shard_by_sample_or_channel,
           .arithmetic = count_image},
          {.type = "adaptive_average_pool",
           .infer = infer_adaptive,
           .differentiate = differentiate,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shard_by_sample_or_channel,
           .arithmetic = count_image},
          {.type = "average_pool_backward",
           .infer = infer_backward<infer_average>,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .arithmetic = count_window},
          {.type = "global_average_pool_backward",
           .infer = infer_backward<infer_global>,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .arithmetic = count_image},
          {.type = "adaptive_average_pool_backward",
           .infer = infer_backward<infer_adaptive>,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .arithmetic = count_image}};
}

}  // namespace millrace::graph::average_pool
