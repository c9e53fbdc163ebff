#include "graph/operators/shapes.h"

namespace millrace::graph::fill {
namespace {

std::vector<TensorType> infer(const Inference& inference) {
  expect_inputs(inference, 0);
  inference.op.attributes.number("value");
  return {{shape_attribute(inference.op.attributes, "shape"), DataType::f32}};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "fill", .infer = infer, .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::fill
