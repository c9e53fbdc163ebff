#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::prelu {
namespace {

void expect_slopes(const Inference& inference, size_t input, const Shape& x) {
  if (x.size() < 2) {
    fail_input("needs a batch with channels (batch x channels ...) but gets {}", to_string(x));
  }
  expect_shape(inference, input, {x[1]}, "a slope for each channel,");
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_slopes(inference, 1, inference.shape(0));
  return {inference.inputs[0]};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 1, inference.shape(0), "an input like its gradient,");
  expect_slopes(inference, 2, inference.shape(0));
  return {inference.inputs[0], inference.inputs[2]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0) && !d.needs_gradient(1)) return;
  const OperatorId added =
      d.apply("prelu_backward", {d.output_gradient(0), d.input(0), d.input(1)});
  for (size_t i = 0; i < 2; ++i) {
    if (d.needs_gradient(i)) d.set_input_gradient(i, d.result(added, i));
  }
}

std::vector<ShardingSignature> shardings(const Inference&) {
  return {{{split(0), broadcast()}, {split(0)}}, {{split(1), split(0)}, {split(1)}}};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "prelu",
           .infer = infer_forward,
           .differentiate = differentiate,
           .cheap = true,
           .halves = OperatorDefinition::Halves::follows,
           .is_bend = true,
           .shardings = shardings},
          {.type = "prelu_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .arithmetic = per_element<4>}};
}

}  // namespace millrace::graph::prelu
