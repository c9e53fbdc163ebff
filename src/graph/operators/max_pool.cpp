#include "base/error.h"
#include "graph/operators/shapes.h"
#include "graph/operators/sharding_rules.h"

namespace millrace::graph::max_pool {
namespace {

Window window_of(const Attributes& attributes) {
  const Window window = pool_window(attributes);
  if (window.area() > 255) {
    fail_input("needs a window of at most 255 positions but gets {}x{}", window.kernel[0],
               window.kernel[1]);
  }
  return window;
}

std::vector<TensorType> infer_forward(const Inference& inference) {
  expect_inputs(inference, 1);
  expect_image(inference, 0);
  const Shape& x = inference.shape(0);
  const Shape y = slide(x, x[1], window_of(inference.op.attributes));
  return {{y, inference.inputs[0].dtype}, {y, DataType::u8}};
}

std::vector<TensorType> infer_backward(const Inference& inference) {
  expect_inputs(inference, 2);
  Shape x = shape_attribute(inference.op.attributes, "input_shape");
  if (x.size() != 4) fail_input("needs an image as input shape but gets {}", to_string(x));
  const Shape y = slide(x, x[1], window_of(inference.op.attributes));
  expect_shape(inference, 0, y, "a gradient");
  expect_shape(inference, 1, y, "indices");
  return {{std::move(x), inference.inputs[0].dtype}};
}

void differentiate(Differentiation& d) {
  if (!d.needs_gradient(0)) return;
  Attributes attributes;
  for (const char* name : {"kernel", "stride", "padding"}) {
    attributes.set(name, d.op().attributes.integers(name));
  }
  attributes.set("ceil", d.op().attributes.flag("ceil"));
  attributes.set("input_shape", d.graph().tensor(d.input(0)).type.shape);
  const TensorId gradient = gradient_before_relu(d);
  const OperatorId added =
      d.apply("max_pool_backward", {gradient, d.output(1)}, std::move(attributes));
  d.set_input_gradient(0, d.result(added));
}

double count_forward(const Inference& inference) {
  const Window window = window_of(inference.op.attributes);
  const int64_t pooled = infer_forward(inference).at(0).elements();
  return static_cast<double>(pooled) * static_cast<double>(window.area());
}

}  // namespace

std::vector<OperatorDefinition> operators() {
  return {{.type = "max_pool",
           .infer = infer_forward,
           .differentiate = differentiate,
           .repeatable = true,
           .halves = OperatorDefinition::Halves::follows,
           .can_begin_with_relu = true,
           .shardings = shard_both_by_sample_or_channel,
           .arithmetic = count_forward},
          {.type = "max_pool_backward",
           .infer = infer_backward,
           .gradient = OperatorDefinition::Gradient::of_inputs,
           .arithmetic = per_element<1>}};
}

}  // namespace millrace::graph::max_pool
