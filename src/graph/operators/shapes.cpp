#include "graph/operators/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"

namespace millrace::graph {

void expect_inputs(const Inference& inference, size_t least, size_t most) {
  const size_t count = inference.inputs.size();
  if (count >= least && count <= most) return;
  throw std::logic_error(fmt::format(
      "operator '{}' ({}) has {} inputs instead of {}", inference.op.name, inference.op.type, count,
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

void expect_image(const Inference& inference, size_t input) {
  const Shape& shape = inference.shape(input);
  if (shape.size() != 4) {
    fail_input("needs images (batch x channels x height x width) but gets {}", to_string(shape));
  }
}

void expect_matrix(const Inference& inference, size_t input) {
  const Shape& shape = inference.shape(input);
  if (shape.size() != 2) {
    fail_input("needs rows of features (batch x features) but gets {}; flatten it first",
               to_string(shape));
  }
}

void expect_shape(const Inference& inference, size_t input, const Shape& wanted,
                  std::string_view what) {
  const Shape& shape = inference.shape(input);
  if (shape != wanted) {
    fail_input("needs {} of shape {} but gets {}", what, to_string(wanted), to_string(shape));
  }
}

int64_t channels_of(const Shape& x) {
  if (x.size() < 2) {
    fail_input("needs a batch with channels (batch x channels ...) but gets {}", to_string(x));
  }
  return x[1];
}

void expect_channels(const Inference& inference, size_t first, size_t last, int64_t channels) {
  for (size_t i = first; i <= last; ++i) {
    expect_shape(inference, i, {channels}, "a value for each channel");
  }
}

void expect_labels(const Inference& inference, size_t input, int64_t samples) {
  expect_shape(inference, input, {samples}, "labels");
  const DataType type = inference.inputs[input].dtype;
  if (type != DataType::s32) fail_input("needs s32 labels but gets {}", name_of(type));
}

std::array<int64_t, 2> pair_of(const Attributes& attributes, std::string_view name, int64_t least) {
  const Attributes::Integers& values = attributes.integers(name);
  if (values.size() != 2) {
    throw std::logic_error(fmt::format("attribute '{}' is not a pair", name));
  }
  for (int64_t value : values) {
    if (value < least) fail_input("needs a {} of at least {} but gets {}", name, least, value);
  }
  return {values[0], values[1]};
}

Window pool_window(const Attributes& attributes) {
  const Window window = {.kernel = pair_of(attributes, "kernel", 1),
                         .stride = pair_of(attributes, "stride", 1),
                         .padding = pair_of(attributes, "padding", 0),
                         .ceil = attributes.flag("ceil")};
  for (size_t i = 0; i < 2; ++i) {
    if (window.padding[i] > window.kernel[i] / 2) {
      fail_input("needs a padding of at most half the kernel ({}) but gets {}",
                 window.kernel[i] / 2, window.padding[i]);
    }
  }
  return window;
}

Shape slide(const Shape& image, int64_t channels, const Window& window) {
  Shape result = {image[0], channels, 0, 0};
  std::array<int64_t, 2> least = {};
  bool fits = true;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = window.dilation[i] * (window.kernel[i] - 1) + 1;
    const int64_t beyond = window.ceil ? window.stride[i] - 1 : 0;
    const int64_t room = image[2 + i] + 2 * window.padding[i] - reach + beyond;
    least[i] = std::max<int64_t>(1, reach - 2 * window.padding[i] - beyond);
    fits = fits && room >= 0;
    result[2 + i] = room / window.stride[i] + 1;
    // None begins behind the image.
    const int64_t last = (result[2 + i] - 1) * window.stride[i];
    if (window.ceil && last >= image[2 + i] + window.padding[i]) --result[2 + i];
  }
  if (!fits) {
    fail_input("needs an image of at least {}x{} here but gets {}x{}", least[0], least[1], image[2],
               image[3]);
  }
  return result;
}

Shape shape_attribute(const Attributes& attributes, std::string_view name) {
  const Shape& shape = attributes.integers(name);
  for (int64_t extent : shape) {
    if (extent < 1) fail_input("needs positive extents but gets the shape {}", to_string(shape));
  }
  return shape;
}

TensorId gradient_before_relu(Differentiation& d) {
  const TensorId gradient = d.output_gradient(0);
  if (!d.op().attributes.flag("relu")) return gradient;
  return d.result(d.apply("relu_backward", {gradient, d.output(0)}));
}

std::vector<TensorType> same_as_first(const Inference& inference) {
  expect_inputs(inference, 1);
  return {inference.inputs[0]};
}

double no_arithmetic(const Inference&) { return 0; }

double bias_and_relu(const Inference& inference) {
  return (inference.inputs.size() == 3 ? 1 : 0) + (inference.op.attributes.flag("relu") ? 1 : 0);
}

}  // namespace millrace::graph
