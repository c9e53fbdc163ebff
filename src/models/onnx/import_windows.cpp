// Nodes with a window: convolutions, pooling, and padding in front of them.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Pair = std::vector<int64_t>;

constexpr int64_t kMostOfWindow = 1 << 16;

// Two numbers, each at least `least`.
Pair pair_attribute(const Node& node, std::string_view name, int64_t otherwise, int64_t least) {
  Pair pair = integers_of(node, name, {otherwise, otherwise});
  if (pair.size() != 2 || *std::min_element(pair.begin(), pair.end()) < least) {
    fail_input("its {} must be two numbers of at least {}", name, least);
  }
  return pair;
}

// The window of a convolution or pooling layer, with the padding before and behind.
struct NodeWindow {
  Pair kernel, stride, dilation, before, behind;

  int64_t reach(size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
  // Of the output.
  int64_t extent(size_t i, int64_t in, int64_t padding) const {
    const int64_t way = in + padding - reach(i);
    return way < 0 ? 0 : way / stride[i] + 1;
  }
};

// Of TensorFlow's kind: as much padding as makes the output input / stride, rounded up.
void pad_to_same(NodeWindow& window, const graph::Shape& image, bool odd_before) {
  for (size_t i = 0; i < 2; ++i) {
    const int64_t in = image[i + 2], out = (in + window.stride[i] - 1) / window.stride[i];
    const int64_t whole = std::max<int64_t>(0, (out - 1) * window.stride[i] + window.reach(i) - in);
    window.before[i] = odd_before ? whole - whole / 2 : whole / 2;
    window.behind[i] = whole - window.before[i];
  }
}

NodeWindow window_of(Importer& importer, const Node& node, const graph::Shape& image, Pair kernel) {
  NodeWindow window = {.kernel = std::move(kernel),
                       .stride = pair_attribute(node, "strides", 1, 1),
                       .dilation = pair_attribute(node, "dilations", 1, 1),
                       .before = {0, 0},
                       .behind = {0, 0}};
  for (const Pair& numbers : {window.stride, window.dilation, window.kernel}) {
    if (std::max(numbers[0], numbers[1]) > kMostOfWindow) fail_input("its window is too large");
  }
  const std::string automatic = text_of(node, "auto_pad");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    pad_to_same(window, image, automatic == "SAME_LOWER");
  } else if (automatic != "VALID") {
    const Pair pads = integers_of(node, "pads", {0, 0, 0, 0});
    if (pads.size() != 4 || *std::min_element(pads.begin(), pads.end()) < 0 ||
        *std::max_element(pads.begin(), pads.end()) > kMostOfWindow) {
      fail_input("its padding must be four numbers from 0 to {}", kMostOfWindow);
    }
    window.before = {pads[0], pads[1]};
    window.behind = {pads[2], pads[3]};
  }
  if (const Padding* more = importer.padding_before(node)) {
    for (size_t i = 0; i < 2; ++i) {
      window.before[i] += more->before[i];
      window.behind[i] += more->behind[i];
    }
  }
  return window;
}

// What a kernel is enlarged by, with zeros, so that the padding is the same on both sides.
struct Enlarged {
  Pair padding = {0, 0}, before = {0, 0}, behind = {0, 0};
  bool is_any() const { return before != Pair{0, 0} || behind != Pair{0, 0}; }
};

Enlarged even_padding(const NodeWindow& window, const graph::Shape& image) {
  Enlarged result;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t before = window.before[i], behind = window.behind[i], in = image[i + 2];
    result.padding[i] = before;
    if (window.extent(i, in, before + behind) == window.extent(i, in, 2 * before)) continue;
    result.padding[i] = std::max(before, behind);
    int64_t& more = before < behind ? result.before[i] : result.behind[i];
    more = std::abs(before - behind);
    if (more % window.dilation[i] != 0) {
      fail_input("it pads one side more than the other, which is not supported with its dilation");
    }
    more /= window.dilation[i];
  }
  return result;
}

TensorData enlarge(const TensorData& weight, const Enlarged& by) {
  const graph::Shape& from = weight.shape;
  const graph::Shape shape = {from[0], from[1], from[2] + by.before[0] + by.behind[0],
                              from[3] + by.before[1] + by.behind[1]};
  constexpr int64_t kMostTimes = 16;
  if (shape[2] * shape[3] > kMostTimes * std::max<int64_t>(1, from[2] * from[3])) {
    fail_input("it pads one side so much more than the other that its window would become {}x{}",
               shape[2], shape[3]);
  }
  const std::vector<float> old = weight.numbers();
  std::vector<float> values(static_cast<size_t>(graph::elements_of(shape)));
  const int64_t width = from[3];
  for (int64_t row = 0; row < from[0] * from[1] * from[2]; ++row) {
    const int64_t y = row % from[2] + by.before[0], to = row / from[2] * shape[2] + y;
    std::copy_n(old.begin() + row * width, width, values.begin() + to * shape[3] + by.before[1]);
  }
  return TensorData::of(weight.name, shape, values);
}

TensorData scaled(const TensorData& weight, const std::vector<float>& factors) {
  std::vector<float> values = weight.numbers();
  const size_t each = values.size() / std::max<size_t>(1, factors.size());
  for (size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / each];
  return TensorData::of(weight.name, weight.shape, values);
}

void read_convolution(Importer& importer, const Node& node) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  TensorData weight = importer.need_constant(node, 1);
  if (weight.shape.size() != 4 || graph::elements_of(weight.shape) < 1) {
    fail_input("its weights are {}", graph::to_string(weight.shape));
  }
  const std::string name = importer.layer_name(node, &weight);
  const NodeWindow window =
      window_of(importer, node, net.shape(x), {weight.shape[2], weight.shape[3]});
  const Enlarged enlarged = even_padding(window, net.shape(x));
  if (enlarged.is_any()) weight = enlarge(weight, enlarged);

  const TensorData* bias = importer.has_input(node, 2) ? &importer.need_constant(node, 2) : nullptr;
  if (bias != nullptr) require_channels(*bias, weight.shape[0]);
  const Scaling behind = scaling_behind(importer, node, weight.shape[0], 4);
  const Node& gives = behind.last == nullptr ? node : *behind.last;
  const int64_t classes = importer.options().classes;
  const bool replaced = classes > 0 && importer.is_last(gives);
  if (replaced) importer.set_features(weight.shape[0]);

  graph::Shape shape = weight.shape;
  if (replaced) shape[0] = classes;
  const auto fan_out = static_cast<float>(std::max<int64_t>(1, shape[0] * shape[2] * shape[3]));
  std::vector<graph::Value> inputs = {
      x, net.parameter(name + ".weight", shape,
                       {graph::Initializer::Kind::normal, 0, std::sqrt(2.0f / fan_out)})};
  importer.take_weight(name + ".weight", behind.scales() ? scaled(weight, behind.factors) : weight);
  if (bias != nullptr || behind.shifts()) {
    inputs.push_back(net.parameter(name + ".bias", {shape[0]}, {}));
    if (behind.last == nullptr) {
      importer.take_weight(name + ".bias", *bias, {weight.shape[0]}, {1});
    } else {
      importer.take_weight(name + ".bias", behind.bias(name + ".bias", bias));
    }
  }
  importer.set(gives, net.apply("convolution", name, inputs,
                                {{"stride", window.stride},
                                 {"padding", enlarged.padding},
                                 {"dilation", window.dilation},
                                 {"groups", integer_of(node, "group", 1)}}));
}

// Sizes that round up, and padding at the far side, are the same thing to a largest value.
void add_pool(Importer& importer, const Node& node, const char* type,
              graph::Attributes attributes) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const graph::Shape image = net.shape(x);
  const NodeWindow window =
      window_of(importer, node, image, pair_attribute(node, "kernel_shape", 0, 1));
  if (window.dilation != Pair{1, 1}) fail_input("dilated pooling is not supported");
  const bool rounds_up = integer_of(node, "ceil_mode", 0) != 0;
  bool beyond[2] = {false, false}, within[2] = {false, false};
  for (size_t i = 0; i < 2; ++i) {
    const int64_t in = image[i + 2], before = window.before[i];
    const int64_t up = rounds_up ? window.stride[i] - 1 : 0;
    const int64_t out = window.extent(i, in, before + window.behind[i] + up);
    within[i] = out == window.extent(i, in, 2 * before);
    beyond[i] = out == window.extent(i, in, 2 * before + window.stride[i] - 1);
  }
  if (!within[0] || !within[1]) {
    if (std::string_view(type) != "max_pool" || !beyond[0] || !beyond[1]) {
      if (rounds_up) {
        fail_input("its ceil_mode gives another size than rounding down, which is not supported");
      }
      fail_input("it pads one side more than the other, which is not supported");
    }
    attributes.set("ceil", true);
  }
  attributes.set("kernel", window.kernel);
  attributes.set("stride", window.stride);
  attributes.set("padding", window.before);
  importer.set(node, net.apply(type, "", {x}, std::move(attributes)));
}

void read_max_pool(Importer& importer, const Node& node) {
  add_pool(importer, node, "max_pool", {});
}

void read_average_pool(Importer& importer, const Node& node) {
  const bool counts = integer_of(node, "count_include_pad", 0) != 0;
  if (importer.padding_before(node) != nullptr && !counts &&
      integers_of(node, "pads", {0, 0, 0, 0}) != Pair{0, 0, 0, 0}) {
    fail_input("it pads twice, which is not supported");
  }
  add_pool(importer, node, "average_pool",
           {{"count_include_pad", counts || importer.padding_before(node) != nullptr}});
}

void read_global_max_pool(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  importer.set(node, largest_of_images(importer, x));
}

// Whether a value is nowhere below zero, so that zeros around it change no maximum.
bool is_positive(const Importer& importer, const Node& node) {
  const Node* from = importer.giver(node.inputs.at(0));
  return from != nullptr && (from->type == "Relu" || from->type == "Sigmoid");
}

// Of height and width, by zeros, in front of windows that pad by themselves.
void read_pad(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const size_t rank = importer.net().shape(x).size();
  const std::vector<int64_t> given =
      importer.has_input(node, 1) ? importer.need_integers(node, 1) : integers_of(node, "pads", {});
  std::vector<int64_t> axes;
  if (importer.has_input(node, 3)) axes = importer.need_integers(node, 3);
  for (size_t i = 0; axes.size() < given.size() / 2; ++i) axes.push_back(static_cast<int64_t>(i));
  Padding padding;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == 0) continue;
    const size_t half = given.size() / 2;
    int64_t axis = i < 2 * half ? axes[i % half] : -1;
    axis += axis < 0 ? 4 : 0;
    if (rank != 4 || given.size() % 2 != 0 || axis < 2 || axis > 3 || given[i] < 0 ||
        given[i] > kMostOfWindow) {
      fail_input("only padding of height and width is supported");
    }
    (i < half ? padding.before : padding.behind)[static_cast<size_t>(axis - 2)] = given[i];
  }
  importer.set(node, x);
  if (padding.before == Pair{0, 0} && padding.behind == Pair{0, 0}) return;
  const std::string mode = text_of(node, "mode");
  double number = number_of(node, "value", 0);
  if (importer.has_input(node, 2)) {
    const std::vector<float> numbers = importer.need_constant(node, 2).numbers();
    number = numbers.size() == 1 ? numbers[0] : 1;
  }
  if ((!mode.empty() && mode != "constant") || number != 0) fail_input("only zeros are supported");
  for (const Node* reader : importer.readers(node)) {
    const bool takes = reader->type == "Conv" || reader->type == "AveragePool" ||
                       (reader->type == "MaxPool" && is_positive(importer, node));
    if (!takes || reader->inputs.at(0) != node.outputs.at(0)) {
      fail_input(
          "padding is supported only in front of Conv, AveragePool, and MaxPool behind Relu");
    }
  }
  importer.set_padding(node, padding);
}

constexpr NodeReader kWindows[] = {
    {"AveragePool", read_average_pool},
    {"Conv", read_convolution},
    {"GlobalMaxPool", read_global_max_pool},
    {"MaxPool", read_max_pool},
    {"Pad", read_pad},
};

}  // namespace

graph::Value largest_of_images(Importer& importer, graph::Value x) {
  const graph::Shape& shape = importer.net().shape(x);
  return importer.net().apply(
      "max_pool", "", {x},
      {{"kernel", Pair{shape[2], shape[3]}}, {"stride", Pair{1, 1}}, {"padding", Pair{0, 0}}});
}

ReadNode find_window_reader(std::string_view type) {
  for (const NodeReader& reader : kWindows) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
