#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::activation {
namespace {

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_shape(inference, 1, inference.shape(0), "an output like its gradient");
  return {inference.inputs[0]};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  const std::string type = d.op().type + "_backward";
  d.set_input_gradient(0, d.result(d.apply(type, {d.output_gradient(0), d.output(0)})));
}

OperatorDefinition forward(std::string_view type) {
  return {.type = type,
          .infer = same_as_first,
          .differentiate = differentiate,
          .in_place = {{0, 0}},
          .cheap = true,
          .shardings = shard_by_sample_or_channel};
}

OperatorDefinition backward(std::string_view type) {
  return {.type = type, .infer = infer_backward, .in_place = {{0, 0}}, .stored_inputs = {1}};
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {forward("relu"),
          forward("relu6"),
          forward("sigmoid"),
          forward("tanh"),
          backward("relu_backward"),
          backward("relu6_backward"),
          backward("sigmoid_backward"),
          backward("tanh_backward")};
}

}  // namespace millrace::activation
