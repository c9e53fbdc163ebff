#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::flatten {
namespace {

std::vector<TensorType> infer_flatten(const Inference& inference) {
  expect_inputs(inference, 1);
  const Shape& x = inference.shape(0);
  if (x.empty()) fail_input("needs a batch but gets a single value");
  return {{{x[0], elements_of(x) / x[0]}, inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_reshape(const Inference& inference) {
  expect_inputs(inference, 1);
  Shape wanted = shape_attribute(inference.op.attributes, "shape");
  if (elements_of(wanted) != inference.inputs[0].elements()) {
    fail_input("needs as many elements as {} but gets {}", to_string(wanted),
               to_string(inference.shape(0)));
  }
  return {{std::move(wanted), inference.inputs[0].dtype}};
}

void differentiate_flatten(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const Shape shape = d.graph().tensor(d.input(0)).type.shape;
  const OperatorId added = d.apply("reshape", {d.output_gradient(0)}, {{"shape", shape}});
  d.set_input_gradient(0, d.result(added));
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "flatten",
           .infer = infer_flatten,
           .differentiate = differentiate_flatten,
           .is_view = true,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .shardings = shard_linear_map,
           .arithmetic = no_arithmetic},
          {.type = "reshape",
           .infer = infer_reshape,
           .is_view = true,
           .halves = OperatorDefinition::Halves::follows,
           .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::flatten
