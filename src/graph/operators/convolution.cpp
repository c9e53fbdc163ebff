#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::convolution {
namespace {

Window window_of(const Attributes& attributes, std::array<int64_t, 2> kernel) {
  return {kernel, pair_of(attributes, "stride", 1), pair_of(attributes, "padding", 0),
          pair_of(attributes, "dilation", 1)};
}

int64_t groups_of(const Attributes& attributes, int64_t in_channels, int64_t out_channels) {
  const int64_t groups = attributes.integer("groups");
  if (groups < 1 || in_channels % groups != 0 || out_channels % groups != 0) {
    fail_input("needs a number of groups that divides {} input and {} output channels but gets {}",
               in_channels, out_channels, groups);
  }
  return groups;
}

Shape output_shape(const Attributes& attributes, const Shape& x, const Shape& w) {
  if (w.size() != 4) {
    fail_input("needs weights (out x in x height x width) but gets {}", to_string(w));
  }
  const int64_t groups = groups_of(attributes, x[1], w[0]);
  if (x[1] != w[1] * groups) {
    fail_input("needs an image of {} channels for weights of {} but gets {}", w[1] * groups,
               to_string(w), x[1]);
  }
  return slide(x, w[0], window_of(attributes, {w[2], w[3]}));
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 2, 3);
  expect_image(inference, 0);
  const Shape& w = inference.shape(1);
  Shape y = output_shape(inference.op.attributes, inference.shape(0), w);
  if (inference.inputs.size() == 3) expect_shape(inference, 2, {w[0]}, "a bias");
  return {{std::move(y), inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_backward_data(const Inference& inference) {
  expect_inputs(inference, 2);
  const Attributes& attributes = inference.op.attributes;
  Shape x = shape_attribute(attributes, "input_shape");
  if (x.size() != 4) fail_input("needs an image as input shape but gets {}", to_string(x));
  expect_shape(inference, 0, output_shape(attributes, x, inference.shape(1)), "a gradient");
  return {{std::move(x), inference.inputs[0].dtype}};
}

std::vector<TensorType> infer_backward_weights(const Inference& inference) {
  expect_inputs(inference, 2);
  expect_image(inference, 0);
  expect_image(inference, 1);
  const Attributes& attributes = inference.op.attributes;
  const Shape& x = inference.shape(0);
  const int64_t out = inference.shape(1)[1];
  const auto kernel = pair_of(attributes, "kernel", 1);
  const Shape w = {out, x[1] / groups_of(attributes, x[1], out), kernel[0], kernel[1]};
  expect_shape(inference, 1, output_shape(attributes, x, w), "a gradient");
  std::vector<TensorType> results = {{w, DataType::f32}};
  if (attributes.flag("bias")) results.push_back({{out}, DataType::f32});
  return results;
}

void differentiate(Differentiation& d) {
  const bool has_bias = d.op().inputs.size() == 3;
  const bool wants_weights = d.needs_gradient(1);
  const bool wants_bias = has_bias && d.needs_gradient(2);
  if (!wants_weights && !wants_bias && !d.needs_gradient(0)) return;
  const Shape x = d.graph().tensor(d.input(0)).type.shape;
  const Shape w = d.graph().tensor(d.input(1)).type.shape;
  Attributes shared;
  for (const char* name : {"stride", "padding", "dilation"}) {
    shared.set(name, d.op().attributes.integers(name));
  }
  shared.set("groups", d.op().attributes.integer("groups"));
  const TensorId gradient = gradient_before_relu(d);
  if (wants_weights || wants_bias) {
    Attributes attributes = shared;
    attributes.set("kernel", Attributes::Integers{w[2], w[3]});
    attributes.set("bias", wants_bias);
    const OperatorId added =
        d.apply("convolution_backward_weights", {d.input(0), gradient}, std::move(attributes));
    if (wants_weights) d.set_input_gradient(1, d.result(added));
    if (wants_bias) d.set_input_gradient(2, d.result(added, 1));
  }
  if (d.needs_gradient(0)) {
    Attributes attributes = shared;
    attributes.set("input_shape", x);
    const OperatorId added =
        d.apply("convolution_backward_data", {gradient, d.input(1)}, std::move(attributes));
    d.set_input_gradient(0, d.result(added));
  }
}

// Groups can be told apart by channel only where each is one channel.
std::vector<ShardingSignature> shardings(const Inference& inference) {
  auto ways = shard_weighted_sum(inference);
  const int64_t groups = inference.op.attributes.integer("groups");
  if (groups == 1) return ways;
  ways.resize(1);
  if (inference.shape(0)[1] == groups && inference.shape(1)[0] == groups) {
    ways.push_back({{split(1), split(0)}, {split(1)}});
    if (inference.inputs.size() == 3) ways.back().inputs.push_back(split(0));
  }
  return ways;
}

void take_part(Attributes& attributes, const InputPart& part) {
  if (part.axis == 1 && attributes.integer("groups") > 1) attributes.set("groups", part.size);
}

double multiply_adds(int64_t outputs, const Shape& w) {
  return 2.0 * static_cast<double>(outputs) * static_cast<double>(w[1] * w[2] * w[3]);
}

double count_forward(const Inference& inference) {
  const auto y = infer_forward(inference).at(0).elements();
  return multiply_adds(y, inference.shape(1)) + bias_and_relu(inference) * static_cast<double>(y);
}

double count_backward_data(const Inference& inference) {
  return multiply_adds(inference.inputs[0].elements(), inference.shape(1));
}

double count_backward_weights(const Inference& inference) {
  const auto results = infer_backward_weights(inference);
  const int64_t dy = inference.inputs[1].elements();
  return multiply_adds(dy, results[0].shape) + (results.size() == 2 ? static_cast<double>(dy) : 0);
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "convolution",
           .infer = infer_forward,
           .differentiate = differentiate,
           .weights = OperatorDefinition::Weights::sliding,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::computes,
           .can_end_in_relu = true,
           .normalised = "normalised_convolution",
           .shardings = shardings,
           .take_part = take_part,
           .arithmetic = count_forward},
          {.type = "convolution_backward_data",
           .infer = infer_backward_data,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .weights = OperatorDefinition::Weights::sliding,
           .arithmetic = count_backward_data},
          {.type = "convolution_backward_weights",
           .infer = infer_backward_weights,
           .gradient = OperatorDefinition::Gradient::of_weights,
           .weights = OperatorDefinition::Weights::sliding,
           .arithmetic = count_backward_weights}};
}

}  // namespace millrace::graph::convolution
