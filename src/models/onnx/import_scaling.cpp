// Nodes that compute with images or rows and a constant for each channel.
#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

// The number of a constant for each channel; none if it is of another shape.
std::optional<std::vector<float>> by_channel(const TensorData& data, int64_t channels,
                                             size_t rank) {
  using enum ElementType;
  const bool is_float =
      data.type == f32 || data.type == f16 || data.type == bf16 || data.type == f64;
  const int64_t count = graph::elements_of(data.shape);
  if (!is_float || (count != 1 && count != channels) || data.shape.size() > rank) return {};
  for (size_t i = 0; i < data.shape.size() && count != 1; ++i) {
    const bool is_channel = data.shape.size() - i == rank - 1;
    if (!is_channel && data.shape[i] != 1) return {};
  }
  std::vector<float> numbers = data.numbers();
  if (count == 1) numbers.resize(static_cast<size_t>(channels), numbers.at(0));
  return numbers;
}

bool is_arithmetic(const Node& node) {
  return node.inputs.size() == 2 &&
         (node.type == "Add" || node.type == "Sub" || node.type == "Mul" || node.type == "Div");
}

// Adds what a node does with `input` to what is done already; false if it is no such node.
bool take_step(const Importer& importer, const Node& node, const std::string& input, size_t rank,
               Scaling& scaling) {
  if (!is_arithmetic(node) || find_hard_gate(importer, node)) return false;
  const size_t other = node.inputs[0] == input ? 1 : 0;
  const TensorData* data = importer.constant(node, other);
  if (data == nullptr || (node.type == "Div" && other == 0)) return false;
  const auto channels = static_cast<int64_t>(scaling.factors.size());
  const std::optional<std::vector<float>> numbers = by_channel(*data, channels, rank);
  if (!numbers) return false;
  for (size_t i = 0; i < numbers->size(); ++i) {
    float &factor = scaling.factors[i], &shift = scaling.offsets[i];
    const float number = (*numbers)[i];
    if (node.type == "Mul" || node.type == "Div") {
      factor = node.type == "Mul" ? factor * number : factor / number;
      shift = node.type == "Mul" ? shift * number : shift / number;
    } else if (node.type == "Add" || other == 1) {
      shift += node.type == "Add" ? number : -number;
    } else {
      factor = -factor;
      shift = number - shift;
    }
  }
  scaling.last = &node;
  return true;
}

Scaling none_of(int64_t channels) {
  require_few(channels);
  const auto count = static_cast<size_t>(channels);
  return {.factors = std::vector<float>(count, 1), .offsets = std::vector<float>(count, 0)};
}

void continue_scaling(Importer& importer, const Node& from, size_t rank, Scaling& scaling) {
  const Node* at = &from;
  for (const Node* next = importer.only_reader(*at); next != nullptr;
       next = importer.only_reader(*at)) {
    if (!take_step(importer, *next, at->outputs.at(0), rank, scaling)) return;
    importer.set_done(*next);
    at = next;
  }
}

// With constants that are not trained: what a file has as a constant is no weight.
graph::Value fixed_scaling(Importer& importer, const std::string& name, graph::Value x,
                           const Scaling& scaling) {
  graph::Builder& net = importer.net();
  const auto channels = static_cast<int64_t>(scaling.factors.size());
  const graph::Shape shape = {channels, 1, 1, 1};
  std::vector<graph::Value> inputs = {x, net.buffer(name + ".weight", shape, 1)};
  importer.take_weight(name + ".weight", TensorData::of(name + ".weight", shape, scaling.factors));
  if (scaling.shifts()) {
    inputs.push_back(net.buffer(name + ".bias", {channels}, 0));
    importer.take_weight(name + ".bias", scaling.bias(name + ".bias", nullptr));
  }
  const std::vector<int64_t> one = {1, 1};
  return net.apply("convolution", name, inputs,
                   {{"stride", one},
                    {"padding", std::vector<int64_t>{0, 0}},
                    {"dilation", one},
                    {"groups", channels}});
}

}  // namespace

void require_few(int64_t channels) {
  constexpr int64_t kMost = 1 << 24;
  if (channels > kMost) fail_input("{} channels are more than {}", channels, kMost);
}

bool Scaling::scales() const {
  return std::any_of(factors.begin(), factors.end(), [](float factor) { return factor != 1; });
}

bool Scaling::shifts() const {
  return std::any_of(offsets.begin(), offsets.end(), [](float offset) { return offset != 0; });
}

TensorData Scaling::bias(const std::string& name, const TensorData* own) const {
  std::vector<float> values = offsets;
  if (own != nullptr) {
    const std::vector<float> before = own->numbers();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += factors[i] * before[before.size() == 1 ? 0 : i];
    }
  }
  return TensorData::of(name, {std::ssize(values)}, values);
}

Scaling scaling_behind(Importer& importer, const Node& node, int64_t channels, size_t rank) {
  Scaling scaling = none_of(channels);
  continue_scaling(importer, node, rank, scaling);
  return scaling;
}

bool read_scaling(Importer& importer, const Node& node) {
  if (!is_arithmetic(node)) return false;
  const size_t other = importer.constant(node, 0) != nullptr ? 0 : 1;
  if (importer.constant(node, other) == nullptr) return false;
  const graph::Value x = importer.value(node, 1 - other);
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() != 4) {
    fail_input("a constant is supported beside images, and for rows behind a linear layer");
  }
  Scaling scaling = none_of(shape[1]);
  if (!take_step(importer, node, node.inputs[1 - other], 4, scaling)) {
    fail_input("of constants only a number for each channel is supported");
  }
  const std::string name = importer.layer_name(node, nullptr);
  continue_scaling(importer, node, 4, scaling);
  const bool changes = scaling.scales() || scaling.shifts();
  importer.set(*scaling.last, changes ? fixed_scaling(importer, name, x, scaling) : x);
  return true;
}

graph::Value scale_images(Importer& importer, const Node& node, graph::Value x, float factor,
                          float offset) {
  require_rank(importer, x, 4);
  Scaling scaling = none_of(importer.net().shape(x)[1]);
  std::fill(scaling.factors.begin(), scaling.factors.end(), factor);
  std::fill(scaling.offsets.begin(), scaling.offsets.end(), offset);
  return fixed_scaling(importer, importer.layer_name(node, nullptr), x, scaling);
}

}  // namespace millrace::models::onnx
