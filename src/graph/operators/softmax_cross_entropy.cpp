#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::softmax_cross_entropy {
namespace {

void expect_smoothing(const Inference& inference) {
  const double smoothing = inference.op.attributes.number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    fail_input("needs a label smoothing from 0 to 1 but gets {}", smoothing);
  }
}

// "samples" is the number of samples of which the loss is the mean, if not those of this tensor.
void expect_samples(const Inference& inference, size_t rows_by_classes) {
  if (!inference.op.attributes.has("samples")) return;
  const int64_t samples = inference.op.attributes.integer("samples");
  const int64_t rows = inference.shape(rows_by_classes)[0];
  if (samples < rows)
    fail_input("needs a mean over at least {} samples but gets {}", rows, samples);
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_matrix(inference, 0);
  expect_labels(inference, 1, inference.shape(0)[0]);
  expect_smoothing(inference);
  expect_samples(inference, 0);
  return {{{1}, DataType::f32}, inference.inputs[0]};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 0, {1}, "the gradient of a loss");
  expect_matrix(inference, 1);
  expect_labels(inference, 2, inference.shape(1)[0]);
  expect_smoothing(inference);
  expect_samples(inference, 1);
  return {inference.inputs[1]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Attributes attributes = d.op().attributes;
  const OperatorId added = d.apply("softmax_cross_entropy_backward",
                                   {d.output_gradient(0), d.output(1), d.input(1)}, attributes);
  d.set_input_gradient(0, d.result(added));
}

// Each device adds up the losses of its samples; over split classes see split_softmax.cpp.
std::vector<ShardingSignature> shardings(const Inference&) {
  return {{{split(0), split(0)}, {partial(), split(0)}},
          {{split(1), broadcast()}, {partial(), split(1)}}};
}

double count_forward(const Inference& inference) {
  return 5.0 * static_cast<double>(inference.inputs[0].elements());
}
double count_backward(const Inference& inference) {
  return 2.0 * static_cast<double>(inference.inputs[1].elements());
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "softmax_cross_entropy",
           .infer = infer_forward,
           .differentiate = differentiate,
           .exact = true,
           .shardings = shardings,
           .arithmetic = count_forward},
          {.type = "softmax_cross_entropy_backward",
           .infer = infer_backward,
           .in_place = {{0, 1}},
           .exact = true,
           .arithmetic = count_backward}};
}

}  // namespace millrace::softmax_cross_entropy
