#include "graph/operators/shapes.h"

namespace millrace::graph::overflow {
namespace {

// The tensor that it writes, perhaps the sum of all squares, then the gradients.
std::vector<TensorType> infer_check(const Inference& inference) {
  const size_t before = inference.op.attributes.flag("has_squares") ? 2 : 1;
  expect_inputs(inference, before, inference.inputs.size());
  expect_shape(inference, 0, {2}, "a flag and the number of a gradient,");
  if (before == 2) expect_shape(inference, 1, {1}, "a sum of squares");
  inference.op.attributes.text("parameters");
  return {};
}

// The tensor that it writes, and a gradient before it is summed over devices.
std::vector<TensorType> infer_probe(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 0, {1}, "a flag");
  return {};
}

double count_looks(const Inference& inference) {
  double count = 0;
  for (const TensorType& gradient : inference.inputs) {
    count += static_cast<double>(gradient.elements());
  }
  return inference.op.attributes.flag("has_squares") ? 0 : count;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "overflow_check",
           .infer = infer_check,
           .precedes_agreement = true,
           .looks_for_overflow = true,
           .mutated_inputs = {0},
           .exchange = OperatorDefinition::Exchange::sum_first,
           .arithmetic = count_looks},
          {.type = "overflow_probe", .infer = infer_probe, .mutated_inputs = {0}}};
}

}  // namespace millrace::graph::overflow
