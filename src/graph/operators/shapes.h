// Shape checks and window arithmetic that operator definitions share. A wrong number of inputs is
// a bug of the caller (std::logic_error); wrong shapes are the user's (InputError, one sentence
// without the layer's name, which Graph::add_operator puts in front).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "graph/operator_definition.h"

namespace millrace::graph {

void expect_inputs(const Inference& inference, size_t least, size_t most);
inline void expect_inputs(const Inference& inference, size_t count) {
  expect_inputs(inference, count, count);
}

// The input is N,C,H,W.
void expect_image(const Inference& inference, size_t input);

// The input is N x features.
void expect_matrix(const Inference& inference, size_t input);

// The input has this shape; `what` names it in the sentence ("the scale").
void expect_shape(const Inference& inference, size_t input, const Shape& wanted,
                  std::string_view what);

// The channels of a batch N,C,...
int64_t channels_of(const Shape& x);

// Inputs `first` to `last` hold a value for each channel.
void expect_channels(const Inference& inference, size_t first, size_t last, int64_t channels);

// One s32 label for each row of a matrix.
void expect_labels(const Inference& inference, size_t input, int64_t samples);

// The height and width that a sliding window reads.
struct Window {
  std::array<int64_t, 2> kernel;
  std::array<int64_t, 2> stride;
  std::array<int64_t, 2> padding;
  std::array<int64_t, 2> dilation = {1, 1};
  bool ceil = false;  // a last window may reach beyond the image and its padding

  int64_t area() const { return kernel[0] * kernel[1]; }
};

// The two integers of an attribute, checked to be at least `least`.
std::array<int64_t, 2> pair_of(const Attributes& attributes, std::string_view name, int64_t least);

// From the attributes kernel, stride, padding and ceil; padding may be at most half the kernel.
Window pool_window(const Attributes& attributes);

// N, `channels`, and the height and width after sliding `window` over `image`.
Shape slide(const Shape& image, int64_t channels, const Window& window);

// The shape in the attribute `name`, checked to hold positive extents.
Shape shape_attribute(const Attributes& attributes, std::string_view name);

// As relu_backward if the forward operator ends in a ReLU, else the output's gradient itself.
TensorId gradient_before_relu(Differentiation& d);

// Inference and arithmetic that many types share.
std::vector<TensorType> same_as_first(const Inference& inference);
double no_arithmetic(const Inference& inference);

template <int operations, size_t input = 0>
double per_element(const Inference& inference) {
  return static_cast<double>(operations * inference.inputs[input].elements());
}

// What a weighted sum does to each of its outputs besides: a third input, a bias, and a ReLU.
double bias_and_relu(const Inference& inference);

}  // namespace millrace::graph
