#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::row_norm {
namespace {

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_matrix(inference, 0);
  return {{{inference.shape(0)[0]}, DataType::f32}};
}

// The gradient of the lengths, the rows and their lengths.
std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_matrix(inference, 1);
  expect_shape(inference, 0, {inference.shape(1)[0]}, "a gradient for each row,");
  expect_shape(inference, 2, {inference.shape(1)[0]}, "a length for each row,");
  return {inference.inputs[1]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const OperatorId added =
      d.apply("row_norm_backward", {d.output_gradient(0), d.input(0), d.output(0)});
  d.set_input_gradient(0, d.result(added));
}

std::vector<ShardingSignature> shardings(const Inference& inference) {
  return {all_split(inference, 1, 0)};
}

double count(const Inference& inference) {
  return 2.0 *
         static_cast<double>(inference.inputs[inference.inputs.size() > 1 ? 1 : 0].elements());
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "row_norm",
           .infer = infer_forward,
           .differentiate = differentiate,
           .exact = true,
           .shardings = shardings,
           .arithmetic = count},
          {.type = "row_norm_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .exact = true,
           .arithmetic = count}};
}

}  // namespace millrace::graph::row_norm
