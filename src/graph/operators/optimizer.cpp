#include "base/error.h"
#include "graph/operators/shapes.h"

namespace millrace::optimizer {
namespace {

// Tensors shaped like the weights (themselves, states, gradient), what else the update reads, then
// perhaps the clip scale and what overflow_check wrote.
void expect_update(const Inference& inference, size_t like_weights, size_t others = 0) {
  const bool has_clip = inference.op.attributes.flag("has_clip");
  const bool has_skip = inference.op.attributes.flag("has_skip");
  const size_t count = like_weights + others + (has_clip ? 1 : 0) + (has_skip ? 1 : 0);
  expect_inputs(inference, count);
  for (size_t i = 1; i < like_weights; ++i) {
    expect_shape(inference, i, inference.shape(0), "states and a gradient like the weights,");
  }
  if (has_clip) expect_shape(inference, like_weights + others, {1}, "a clip scale");
  if (has_skip) expect_shape(inference, count - 1, {2}, "whether to skip");
}

template <size_t like_weights>
std::vector<TensorType> infer_sgd(const Inference& inference) {
  expect_update(inference, like_weights);
  return {};
}

// Counts its own updates: what the bias correction needs goes where the moments go.
std::vector<TensorType> infer_adamw(const Inference& inference) {
  expect_update(inference, 4, 1);
  expect_shape(inference, 4, {1}, "a number of updates");
  return {};
}

// With "squares_at" the weights are a slice of a tensor: an input has the sums of squares of whole
// weights and gradients, those of this tensor from that place on.
std::vector<TensorType> infer_lars(const Inference& inference) {
  const bool is_slice = inference.op.attributes.has("squares_at");
  expect_update(inference, 3, is_slice ? 1 : 0);
  if (!is_slice) return {};
  const int64_t place = inference.op.attributes.integer("squares_at");
  if (place < 0 || inference.inputs[3].elements() < place + 2) {
    fail_input("needs sums of squares up to place {} but gets {}", place + 1,
               to_string(inference.shape(3)));
  }
  return {};
}

// One sum for each input.
std::vector<TensorType> infer_squares_of_each(const Inference& inference) {
  if (inference.inputs.empty()) fail_input("needs at least one tensor but gets none");
  return {{{static_cast<int64_t>(inference.inputs.size())}, DataType::f32}};
}

std::vector<TensorType> infer_sum_of_squares(const Inference& inference) {
  if (inference.inputs.empty()) fail_input("needs at least one gradient but gets none");
  return {{{1}, DataType::f32}};
}

// Copies a sum of squares to where stages add up theirs.
std::vector<TensorType> infer_keep_squares(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 0, {1}, "a place for a sum of squares");
  expect_shape(inference, 1, {1}, "a sum of squares");
  return {};
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
           .infer = infer_sgd<3>,
           .mutated_inputs = {0, 1},
           .arithmetic = count_per_weight<6>},
          {.type = "sgd_plain_update",
           .infer = infer_sgd<2>,
           .mutated_inputs = {0},
           .arithmetic = count_per_weight<4>},
          {.type = "adamw_update",
           .infer = infer_adamw,
           .mutated_inputs = {0, 1, 2, 4},
           .arithmetic = count_per_weight<14>},
          {.type = "lars_update",
           .infer = infer_lars,
           .mutated_inputs = {0, 1},
           .arithmetic = count_per_weight<10>},
          {.type = "sum_of_squares", .infer = infer_sum_of_squares, .arithmetic = count_squares},
          {.type = "squares_of_each", .infer = infer_squares_of_each, .arithmetic = count_squares},
          {.type = "keep_squares", .infer = infer_keep_squares, .mutated_inputs = {0}},
          {.type = "clip_scale", .infer = infer_clip_scale}};
}

}  // namespace millrace::optimizer
