#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::l2_normalize {
namespace {

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_matrix(inference, 0);
  return {inference.inputs[0], {{inference.shape(0)[0]}, DataType::f32}};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_matrix(inference, 0);
  expect_shape(inference, 1, inference.shape(0), "an output like its gradient,");
  expect_shape(inference, 2, {inference.shape(0)[0]}, "a norm for each row,");
  return {inference.inputs[0]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const OperatorId added =
      d.apply("l2_normalize_backward", {d.output_gradient(0), d.output(0), d.output(1)},
              {{"epsilon", d.op().attributes.number("epsilon")}});
  d.set_input_gradient(0, d.result(added));
}

std::vector<ShardingSignature> shardings(const Inference& inference) {
  return {all_split(inference, 2, 0)};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "l2_normalize",
           .infer = infer_forward,
           .differentiate = differentiate,
           .exact = true,
           .shardings = shardings,
           .arithmetic = per_element<3>},
          {.type = "l2_normalize_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .exact = true,
           .arithmetic = per_element<5>}};
}

}  // namespace millrace::graph::l2_normalize
