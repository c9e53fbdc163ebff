// narrow and widen: the same tensor in 16 bits, and back in float32.
#include <stdexcept>

#include "graph/operators/shapes.h"

namespace millrace {
namespace {

DataType stored_type(const Attributes& attributes) {
  const std::string& name = attributes.text("dtype");
  if (name == name_of(DataType::f16)) return DataType::f16;
  if (name == name_of(DataType::bf16)) return DataType::bf16;
  throw std::logic_error("a tensor is stored as f16 or bf16");
}

std::vector<TensorType> infer_narrow(const Inference& inference) {
  expect_inputs(inference, 1);
  if (inference.inputs[0].dtype != DataType::f32) throw std::logic_error("narrow takes f32");
  return {{inference.shape(0), stored_type(inference.op.attributes)}};
}

std::vector<TensorType> infer_widen(const Inference& inference) {
  expect_inputs(inference, 1);
  const DataType type = inference.inputs[0].dtype;
  if (type != DataType::f16 && type != DataType::bf16) {
    throw std::logic_error("widen takes f16 or bf16");
  }
  return {{inference.shape(0), DataType::f32}};
}

}  // namespace

std::vector<OperatorDefinition> storage_operators() {
  return {{.type = "narrow", .infer = infer_narrow, .arithmetic = no_arithmetic},
          {.type = "widen", .infer = infer_widen, .arithmetic = no_arithmetic}};
}

}  // namespace millrace
