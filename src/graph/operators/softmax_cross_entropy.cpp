#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::softmax_cross_entropy {
namespace {

void expect_smoothing(const Inference& inference) {
  const double smoothing = inference.op.attributes.number("label_smoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    fail_input("needs a label smoothing from 0 to 1 but gets {}", smoothing);
  }
}

// "class_weights" has a factor of the loss for each class; without it, all are 1.
void expect_class_weights(const Inference& inference, size_t rows_by_classes) {
  if (!inference.op.attributes.has("class_weights")) return;
  const auto weights =
      static_cast<int64_t>(inference.op.attributes.numbers("class_weights").size());
  const int64_t classes = inference.shape(rows_by_classes)[1];
  if (weights != classes) {
    fail_input("needs a weight for each of {} classes but gets {}", classes, weights);
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

// An input behind the labels: of each sample a second label and the share, in units of 2^-24, that
// the first one has of the target.
void expect_mixing(const Inference& inference, size_t input, int64_t samples) {
  if (inference.inputs.size() == input) return;
  expect_shape(inference, input, {samples, 2}, "a second label and a share,");
  if (inference.inputs[input].dtype != DataType::s32) fail_input("needs s32 labels and shares");
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2, 3);
  expect_matrix(inference, 0);
  expect_labels(inference, 1, inference.shape(0)[0]);
  expect_smoothing(inference);
  expect_samples(inference, 0);
  expect_class_weights(inference, 0);
  expect_mixing(inference, 2, inference.shape(0)[0]);
  return {{{1}, DataType::f32}, inference.inputs[0]};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 3, 4);
  expect_shape(inference, 0, {1}, "the gradient of a loss");
  expect_matrix(inference, 1);
  expect_labels(inference, 2, inference.shape(1)[0]);
  expect_smoothing(inference);
  expect_samples(inference, 1);
  expect_class_weights(inference, 1);
  expect_mixing(inference, 3, inference.shape(1)[0]);
  return {inference.inputs[1]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Attributes attributes = d.op().attributes;
  std::vector<TensorId> inputs = {d.output_gradient(0), d.output(1), d.input(1)};
  if (d.op().inputs.size() == 3) inputs.push_back(d.input(2));
  const OperatorId added = d.apply("softmax_cross_entropy_backward", std::move(inputs), attributes);
  d.set_input_gradient(0, d.result(added));
}

// Each device adds up the losses of its samples; over split classes, where they have no weights and
// no second labels, see split_softmax.cpp.
std::vector<ShardingSignature> shardings(const Inference& inference) {
  std::vector<ShardingSignature> ways = {{{split(0), split(0)}, {partial(), split(0)}}};
  if (inference.inputs.size() == 3) {
    ways[0].inputs.push_back(split(0));
  } else if (!inference.op.attributes.has("class_weights")) {
    ways.push_back({{split(1), broadcast()}, {partial(), split(1)}});
  }
  return ways;
}

void take_part(Attributes& attributes, const InputPart& part) {
  if (part.axis == 0 && !attributes.has("samples")) attributes.set("samples", part.whole);
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "softmax_cross_entropy",
           .infer = infer_forward,
           .differentiate = differentiate,
           .averages_samples = true,
           .exact = true,
           .shardings = shardings,
           .take_part = take_part,
           .expansion = OperatorDefinition::Expansion::loss_of_classes,
           .arithmetic = per_element<5>},
          {.type = "softmax_cross_entropy_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .in_place = {{0, 1}},
           .exact = true,
           .arithmetic = per_element<2, 1>}};
}

}  // namespace millrace::graph::softmax_cross_entropy
