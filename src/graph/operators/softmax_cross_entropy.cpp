#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace {
namespace {

void expect_smoothing(const Inference& inference) {
  const double smoothing = inference.op.attributes.number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    fail_input("needs a label smoothing from 0 to 1 but gets {}", smoothing);
  }
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  expect_labels(inference, 1, inference.shape(0)[0]);
  expect_smoothing(inference);
  return {{{1}, DataType::f32}, inference.inputs[0]};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 0, {1}, "the gradient of a loss");
  expect_matrix(inference, 1);
  expect_labels(inference, 2, inference.shape(1)[0]);
  expect_smoothing(inference);
  return {inference.inputs[1]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const double smoothing = d.op().attributes.number("label_smoothing");
  const OperatorId added =
      d.apply("softmax_cross_entropy_backward", {d.output_gradient(0), d.output(1), d.input(1)},
              {{"label_smoothing", smoothing}});
  d.set_input_gradient(0, d.result(added));
}

double count_forward(const Inference& inference) {
  return 5.0 * static_cast<double>(inference.inputs[0].elements());
}
double count_backward(const Inference& inference) {
  return 2.0 * static_cast<double>(inference.inputs[1].elements());
}

}  // namespace

std::vector<OperatorDefinition> softmax_cross_entropy_operators() {
  return {{.type = "softmax_cross_entropy",
           .infer = infer_forward,
           .differentiate = differentiate,
           .arithmetic = count_forward},
          {.type = "softmax_cross_entropy_backward",
           .infer = infer_backward,
           .in_place = {{0, 1}},
           .arithmetic = count_backward}};
}

}  // namespace millrace
