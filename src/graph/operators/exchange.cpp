// Gradients and weights between the devices that share parameters.
//
// A reduction is two operators: "_start" hands the gradients to the collectives and returns at
// once, "_wait" is where the sums are needed. Both work in the memory of the gradients.
#include "graph/exchange.h"

#include "graph/operators/shapes.h"

namespace millrace::graph::exchange {
namespace {

// Gradients, then the parameters whose layouts they take; staging for several at once.
std::vector<TensorType> infer_start(const Inference& inference) {
  const auto count = static_cast<size_t>(inference.op.attributes.integer("tensors"));
  expect_inputs(inference, 2 * count);
  std::vector<TensorType> outputs(inference.inputs.begin(),
                                  inference.inputs.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    expect_shape(inference, i, inference.shape(count + i), "gradients like the weights,");
  }
  const int64_t staging = inference.op.attributes.integer("staging");
  if (staging > 0) outputs.push_back({{staging}, DataType::f32});
  return outputs;
}

std::vector<TensorType> infer_wait(const Inference& inference) {
  const auto count = static_cast<size_t>(inference.op.attributes.integer("tensors"));
  expect_inputs(inference, count, count + 1);
  return {inference.inputs.begin(), inference.inputs.begin() + static_cast<ptrdiff_t>(count)};
}

std::vector<TensorType> infer_gather(const Inference& inference) {
  expect_inputs(inference, 1);
  return {};
}

std::vector<TensorType> infer_nothing(const Inference& inference) {
  expect_inputs(inference, 0);
  return {};
}

// The sum so far, the gradient of one micro-batch, the parameter.
std::vector<TensorType> infer_accumulate(const Inference& inference) {
  expect_inputs(inference, 3);
  expect_shape(inference, 1, inference.shape(0), "a gradient like its sum,");
  expect_shape(inference, 2, inference.shape(0), "a parameter like its gradient,");
  return {};
}

std::vector<OperatorDefinition::InPlace> each_in_place() {
  std::vector<OperatorDefinition::InPlace> pairs;
  for (int i = 0; i < kMostExchangedTensors; ++i) pairs.push_back({i, i});
  return pairs;
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "gradient_reduce_start",
           .infer = infer_start,
           .in_place = each_in_place(),
           .exchange = OperatorDefinition::Exchange::start_sums,
           .arithmetic = no_arithmetic},
          {.type = "gradient_reduce_wait",
           .infer = infer_wait,
           .in_place = each_in_place(),
           .exchange = OperatorDefinition::Exchange::wait,
           .arithmetic = no_arithmetic},
          {.type = "parameter_gather_start",
           .infer = infer_gather,
           .mutated_inputs = {0},
           .exchange = OperatorDefinition::Exchange::start_gather,
           .arithmetic = no_arithmetic},
          {.type = "exchange_wait",
           .infer = infer_nothing,
           .exchange = OperatorDefinition::Exchange::wait,
           .arithmetic = no_arithmetic},
          {.type = "accumulate",
           .infer = infer_accumulate,
           .mutated_inputs = {0},
           .arithmetic = per_element<1>}};
}

}  // namespace millrace::graph::exchange
