// cast: the same values as another type of number, from float32 or to it; attribute "to" (a
// DataType as an integer).
#include <stdexcept>

#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::cast {
namespace {

bool is_real(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16;
}

std::vector<TensorType> infer(const Inference& inference) {
  expect_inputs(inference, 1);
  const auto to = static_cast<DataType>(inference.op.attributes.integer("to"));
  const DataType from = inference.inputs[0].dtype;
  const bool has_float = to == DataType::f32 || from == DataType::f32;
  if (!is_real(to) || !is_real(from) || !has_float) {
    throw std::logic_error("a cast is between float32 and a type of real numbers");
  }
  return {{inference.shape(0), to}};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const auto back = static_cast<int64_t>(d.graph().tensor(d.input(0)).type.dtype);
  d.set_input_gradient(0, d.result(d.apply("cast", {d.output_gradient(0)}, {{"to", back}})));
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "cast",
           .infer = infer,
           .differentiate = differentiate,
           .cheap = true,
           .shardings = shard_linear_map,
           .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::cast
