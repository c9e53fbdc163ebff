#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/optimizers.h"

namespace millrace::graph::optimizer {
namespace {

// Weights, states and gradient, of one shape; then the number of updates where the rule counts
// them; with "squares_at" the sums of squares that the step is fitted to, those of this tensor from
// that place on; perhaps the clip scale and what overflow_check wrote.
struct UpdateShapes {
  size_t like_weights = 0;
  bool counts = false;
  bool has_squares = false;
  bool has_clip = false;
  bool has_skip = false;
};

void expect_update(const Inference& inference, const UpdateShapes& shapes) {
  const size_t counter = shapes.like_weights;
  const size_t squares = counter + (shapes.counts ? 1 : 0);
  const size_t clip = squares + (shapes.has_squares ? 1 : 0);
  const size_t count = clip + (shapes.has_clip ? 1 : 0) + (shapes.has_skip ? 1 : 0);
  expect_inputs(inference, count);
  for (size_t i = 1; i < shapes.like_weights; ++i) {
    expect_shape(inference, i, inference.shape(0), "states and a gradient like the weights,");
  }
  if (shapes.counts) expect_shape(inference, counter, {1}, "a number of updates");
  if (shapes.has_clip) expect_shape(inference, clip, {1}, "a clip scale");
  if (shapes.has_skip) expect_shape(inference, count - 1, {2}, "whether to skip");
  if (!shapes.has_squares) return;
  const int64_t place = inference.op.attributes.integer("squares_at");
  if (place < 0 || inference.inputs[squares].elements() < place + 2) {
    fail_input("needs sums of squares up to place {} but gets {}", place + 1,
               to_string(inference.shape(squares)));
  }
}

// The row whose NAME_update, or whose NAME_moments, the operator is.
const OptimizerDefinition& row_of(const Operator& op) {
  return optimizer_named(std::string_view(op.type).substr(0, op.type.rfind('_')));
}

std::vector<TensorType> infer_update(const Inference& inference) {
  const OptimizerDefinition& row = row_of(inference.op);
  const Attributes& attributes = inference.op.attributes;
  expect_update(inference, {.like_weights = 2 + row.states.size(),
                            .counts = row.counts_updates,
                            .has_squares = attributes.has("squares_at"),
                            .has_clip = attributes.flag("has_clip"),
                            .has_skip = attributes.flag("has_skip")});
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

double count_update(const Inference& inference) {
  const int clip = inference.op.attributes.flag("has_clip") ? 1 : 0;
  return static_cast<double>(row_of(inference.op).operations + clip) *
         static_cast<double>(inference.inputs[0].elements());
}

double count_squares(const Inference& inference) {
  double count = 0;
  for (const TensorType& gradient : inference.inputs) {
    count += 2.0 * static_cast<double>(gradient.elements());
  }
  return count;
}

OperatorDefinition update_of(const OptimizerDefinition& row) {
  OperatorDefinition definition = {
      .type = row.update_type, .infer = infer_update, .arithmetic = count_update};
  const auto states = static_cast<int>(row.states.size());
  for (int i = 0; i <= states; ++i) definition.mutated_inputs.push_back(i);
  if (row.counts_updates) definition.mutated_inputs.push_back(states + 2);
  return definition;
}

// The first half of a step that is fitted to its own norm, where others have the rest of the
// tensor: counts the update, brings the states up to date, and writes the sums of squares of
// weights and step to its place among those that all of them add up. The second half is the update.
OperatorDefinition moments_of(const OptimizerDefinition& row) {
  OperatorDefinition definition = update_of(row);
  definition.type = row.moments_type;
  definition.mutated_inputs.erase(definition.mutated_inputs.begin());
  definition.mutated_inputs.push_back(definition.mutated_inputs.back() + 1);  // the squares
  return definition;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  std::vector<OperatorDefinition> all = {
      {.type = "sum_of_squares", .infer = infer_sum_of_squares, .arithmetic = count_squares},
      {.type = "squares_of_each", .infer = infer_squares_of_each, .arithmetic = count_squares},
      {.type = "keep_squares",
       .infer = infer_keep_squares,
       .precedes_agreement = true,
       .mutated_inputs = {0}},
      {.type = "clip_scale", .infer = infer_clip_scale}};
  for (const OptimizerDefinition& row : optimizers()) {
    all.push_back(update_of(row));
    if (row.trust == Trust::step) all.push_back(moments_of(row));
  }
  return all;
}

}  // namespace millrace::graph::optimizer
