#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace::optimizer {
namespace {

// Tensors shaped like the weights (themselves, states, gradient), then perhaps the clip scale and
// what overflow_check wrote.
template <size_t like_weights>
std::vector<TensorType> infer_update(const Inference& inference) {
  const bool has_clip = inference.op.attributes.flag("has_clip");
  const bool has_skip = inference.op.attributes.flag("has_skip");
  const size_t count = like_weights + (has_clip ? 1 : 0) + (has_skip ? 1 : 0);
  expect_inputs(inference, count);
  for (size_t i = 1; i < like_weights; ++i) {
    expect_shape(inference, i, inference.shape(0), "states and a gradient like the weights,");
  }
  if (has_clip) expect_shape(inference, like_weights, {1}, "a clip scale");
  if (has_skip) expect_shape(inference, count - 1, {2}, "whether to skip");
  return {};
}

std::vector<TensorType> infer_sum_of_squares(const Inference& inference) {
  if (inference.inputs.empty()) fail_input("needs at least one gradient but gets none");
  return {{{1}, DataType::f32}};
}

std::vector<TensorType> infer_clip_scale(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_shape(inference, 0, {1}, "a sum of squares");
  const double max_norm = inference.op.attributes.number("max_norm");
  if (!(max_norm > 0)) fail_input("needs a maximum norm above 0 but gets {}", max_norm);
  return {{{1}, DataType::f32}};
}

template <int operations>
double count_per_weight(const Inference& inference) {
  const int clip = inference.op.attributes.flag("has_clip") ? 1 : 0;
  return static_cast<double>(operations + clip) *
         static_cast<double>(inference.inputs[0].elements());
}

double count_squares(const Inference& inference) {
  double count = 0;
  for (const TensorType& gradient : inference.inputs) {
    count += 2.0 * static_cast<double>(gradient.elements());
  }
  return count;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "sgd_update",
           .infer = infer_update<3>,
           .mutated_inputs = {0, 1},
           .arithmetic = count_per_weight<6>},
          {.type = "sgd_plain_update",
           .infer = infer_update<2>,
           .mutated_inputs = {0},
           .arithmetic = count_per_weight<4>},
          {.type = "adamw_update",
           .infer = infer_update<4>,
           .mutated_inputs = {0, 1, 2},
           .arithmetic = count_per_weight<14>},
          {.type = "lars_update",
           .infer = infer_update<3>,
           .mutated_inputs = {0, 1},
           .arithmetic = count_per_weight<10>},
          {.type = "sum_of_squares", .infer = infer_sum_of_squares, .arithmetic = count_squares},
          {.type = "clip_scale", .infer = infer_clip_scale}};
}

}  // namespace millrace::optimizer
