// Softmax cross-entropy and accuracy where each device has the logits of some classes. Attributes:
// class_begin, where its classes begin among all `classes`, and members; those of the loss as of
// softmax_cross_entropy besides.
//
// softmax_statistics gives per sample the largest logit, the sum of e^(logit - largest), the
// target's logit (0 where another device has it) and the sum of logit - largest. Gathered from all
// members they hold the loss, which every member computes alike: each takes an equal share of it,
// so that the shares add up, and the whole gradient of its own logits.
#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace::graph::split_softmax {
namespace {

constexpr int64_t kStatistics = 4;

void expect_classes(const Inference& inference, size_t logits, size_t labels) {
  expect_matrix(inference, logits);
  expect_labels(inference, labels, inference.shape(logits)[0]);
  const int64_t begin = inference.op.attributes.integer("class_begin");
  const int64_t classes = inference.op.attributes.integer("classes");
  const int64_t own = inference.shape(logits)[1];
  if (begin < 0 || begin > classes - own) {
    fail_input("needs a place for {} classes among {} but gets {}", own, classes, begin);
  }
}

void expect_statistics(const Inference& inference, size_t input, int64_t samples) {
  const int64_t members = inference.op.attributes.integer("members");
  expect_shape(inference, input, {members * samples, kStatistics}, "every member's statistics");
}

std::vector<TensorType> infer_statistics(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_classes(inference, 0, 1);
  return {{{inference.shape(0)[0], kStatistics}, DataType::f32}};
}

std::vector<TensorType> infer_loss(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_classes(inference, 0, 1);
  const int64_t samples = inference.shape(0)[0];
  expect_statistics(inference, 2, samples);
  inference.op.attributes.number("label_smoothing");
  return {{{1}, DataType::f32}, {{samples, 2}, DataType::f32}};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 4);
  expect_shape(inference, 0, {1}, "the gradient of a loss");
  expect_classes(inference, 1, 2);
  expect_shape(inference, 3, {inference.shape(1)[0], 2}, "a maximum and a sum per sample,");
  return {inference.inputs[1]};
}

std::vector<TensorType> infer_rank(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_classes(inference, 0, 1);
  const int64_t samples = inference.shape(0)[0];
  expect_statistics(inference, 2, samples);
  return {{{samples}, DataType::f32}};
}

std::vector<TensorType> infer_hits(const Inference& inference) {
  expect_inputs(inference, 1);
  if (inference.shape(0).size() != 1) {
    fail_input("needs one rank per sample but gets {}", to_string(inference.shape(0)));
  }
  inference.op.attributes.integer("k");
  return {{{1}, DataType::f32}};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Attributes attributes = d.op().attributes;
  const OperatorId added =
      d.apply("split_softmax_backward", {d.output_gradient(0), d.input(0), d.input(1), d.output(1)},
              attributes);
  d.set_input_gradient(0, d.result(added));
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {
      {.type = "softmax_statistics",
       .infer = infer_statistics,
       .exact = true,
       .arithmetic = per_element<5>},
      {.type = "split_softmax_loss",
       .infer = infer_loss,
       .differentiate = differentiate,
       .exact = true,
       .arithmetic = per_element<2, 2>},
      {.type = "split_softmax_backward",
       .infer = infer_backward,
       .gradient = OperatorDefinition::Gradient::of_inputs,
       .in_place = {{0, 1}},
       .exact = true,
       .arithmetic = per_element<4, 1>},
      {.type = "split_rank", .infer = infer_rank, .is_metric = true, .arithmetic = per_element<1>},
      {.type = "rank_hits", .infer = infer_hits, .is_metric = true, .arithmetic = per_element<1>},
  };
}

}  // namespace millrace::graph::split_softmax
