// One function for each kind of node that becomes a layer, and the list of them.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/exporter.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Pair = std::vector<int64_t>;

void require_channels(const TensorData& data, int64_t channels) {
  if (graph::elements_of(data.shape) != channels) {
    fail_input("'{}' has {} values where there are {} channels", data.name,
               graph::elements_of(data.shape), channels);
  }
}

void require_rank(Importer& importer, graph::Value x, size_t rank) {
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() != rank) {
    fail_input("it gets {} where {} axes are needed", graph::to_string(shape), rank);
  }
}

// Two numbers, each at least `least`.
Pair pair_attribute(const Node& node, std::string_view name, int64_t otherwise, int64_t least) {
  Pair pair = integers_of(node, name, {otherwise, otherwise});
  if (pair.size() != 2 || *std::min_element(pair.begin(), pair.end()) < least) {
    fail_input("its {} must be two numbers of at least {}", name, least);
  }
  return pair;
}

// The window of a convolution or pooling layer: stride, padding (the same on both sides) and
// dilation.
struct NodeWindow {
  Pair stride, padding, dilation;
};

// Of TensorFlow's kind: as much padding as makes the output input / stride, rounded up.
Pair same_padding(const graph::Shape& image, const Pair& kernel, const NodeWindow& window) {
  Pair padding;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t in = image[i + 2], out = (in + window.stride[i] - 1) / window.stride[i];
    const int64_t reach = window.dilation[i] * (kernel[i] - 1) + 1;
    const int64_t whole = std::max<int64_t>(0, (out - 1) * window.stride[i] + reach - in);
    if (whole % 2 != 0) fail_input("its auto_pad pads one side more than the other");
    padding.push_back(whole / 2);
  }
  return padding;
}

NodeWindow window_of(const Node& node, const graph::Shape& image, const Pair& kernel) {
  constexpr int64_t kMost = 1 << 16;
  NodeWindow window = {.stride = pair_attribute(node, "strides", 1, 1),
                       .padding = {0, 0},
                       .dilation = pair_attribute(node, "dilations", 1, 1)};
  for (const Pair& numbers : {window.stride, window.dilation, kernel}) {
    if (std::max(numbers[0], numbers[1]) > kMost) fail_input("its window is too large");
  }
  const std::string automatic = text_of(node, "auto_pad");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    window.padding = same_padding(image, kernel, window);
    return window;
  }
  const Pair pads = integers_of(node, "pads", {0, 0, 0, 0});
  if (pads.size() != 4 || pads[0] != pads[2] || pads[1] != pads[3]) {
    fail_input("it pads one side more than the other, which is not supported");
  }
  if (std::min(pads[0], pads[1]) < 0 || std::max(pads[0], pads[1]) > kMost) {
    fail_input("its padding must be from 0 to {}", kMost);
  }
  window.padding = {pads[0], pads[1]};
  return window;
}

void read_convolution(Importer& importer, const Node& node) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const TensorData& weight = importer.need_constant(node, 1);
  if (weight.shape.size() != 4) fail_input("its weights are {}", graph::to_string(weight.shape));
  const NodeWindow window = window_of(node, net.shape(x), {weight.shape[2], weight.shape[3]});
  const std::string name = importer.layer_name(node, &weight);
  const int64_t area = weight.shape[2] * weight.shape[3];
  const auto fan_out = static_cast<float>(std::max<int64_t>(1, weight.shape[0] * area));
  std::vector<graph::Value> inputs = {
      x, net.parameter(name + ".weight", weight.shape,
                       {graph::Initializer::Kind::normal, 0, std::sqrt(2.0f / fan_out)})};
  importer.take_weight(name + ".weight", weight);
  if (importer.has_input(node, 2)) {
    const TensorData& bias = importer.need_constant(node, 2);
    require_channels(bias, weight.shape[0]);
    inputs.push_back(net.parameter(name + ".bias", {weight.shape[0]}, {}));
    importer.take_weight(name + ".bias", bias, {weight.shape[0]}, {1});
  }
  importer.set(node, net.apply("convolution", name, inputs,
                               {{"stride", window.stride},
                                {"padding", window.padding},
                                {"dilation", window.dilation},
                                {"groups", integer_of(node, "group", 1)}}));
}

void read_batch_norm(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() < 2) fail_input("it gets {}", graph::to_string(shape));
  const std::string name = importer.layer_name(node, importer.constant(node, 1));
  constexpr const char* kNames[] = {".weight", ".bias", ".running_mean", ".running_var"};
  for (size_t i = 0; i < 4; ++i) {
    const TensorData& data = importer.need_constant(node, i + 1);
    require_channels(data, shape[1]);
    importer.take_weight(name + kNames[i], data, {shape[1]}, {1});
  }
  importer.set(node, importer.net().batch_norm(x, name,
                                               {.epsilon = number_of(node, "epsilon", 1e-5),
                                                .momentum = 1 - number_of(node, "momentum", 0.9)}));
}

// Adds a linear layer whose weight is `weight`, out x in if `transposed`, else in x out.
void add_linear(Importer& importer, const Node& node, const TensorData& weight, bool transposed,
                const TensorData* bias, const Node& gives) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 2);
  if (weight.shape.size() != 2) fail_input("its weights are {}", graph::to_string(weight.shape));
  const int64_t in = weight.shape[transposed ? 1 : 0], out = weight.shape[transposed ? 0 : 1];
  if (net.shape(x)[1] != in) {
    fail_input("its weights are for {} features, but images of this size give it {}", in,
               net.shape(x)[1]);
  }
  const std::string name = importer.layer_name(node, &weight);
  importer.take_weight(name + ".weight", weight, {out, in},
                       transposed ? Pair{in, 1} : Pair{1, out});
  if (bias != nullptr) {
    require_channels(*bias, out);
    importer.take_weight(name + ".bias", *bias, {out}, {1});
  }
  const int64_t classes = importer.options().classes;
  const bool replaced = classes > 0 && importer.is_last(gives);
  if (replaced) importer.set_features(out);
  importer.set(
      gives, net.linear(x, name, {.features = replaced ? classes : out, .bias = bias != nullptr}));
}

void read_gemm(Importer& importer, const Node& node) {
  if (integer_of(node, "transA", 0) != 0 || number_of(node, "alpha", 1) != 1 ||
      (importer.has_input(node, 2) && number_of(node, "beta", 1) != 1)) {
    fail_input("transA, alpha and beta other than 0, 1 and 1 are not supported");
  }
  const TensorData* bias = importer.has_input(node, 2) ? &importer.need_constant(node, 2) : nullptr;
  add_linear(importer, node, importer.need_constant(node, 1), integer_of(node, "transB", 0) != 0,
             bias, node);
}

// Whether a node is a product with the matrix that averages `in` elements to some.
const TensorData* averaging_by(const Importer& importer, const Node* node, int64_t in) {
  if (node == nullptr || node->type != "MatMul") return nullptr;
  const TensorData* matrix = importer.constant(*node, 1);
  if (matrix == nullptr || matrix->type != ElementType::f32 || matrix->shape.size() != 2) {
    return nullptr;
  }
  const int64_t out = matrix->shape[1];
  const bool fits = matrix->shape[0] == in && out > 0;
  return fits && matrix->numbers() == averaging(in, out) ? matrix : nullptr;
}

bool swaps_last_axes(const Node* node) {
  return node != nullptr && node->type == "Transpose" &&
         integers_of(*node, "perm", {}) == std::vector<int64_t>{0, 1, 3, 2};
}

// Adaptive pooling as it is exported: a product and a transposition for each axis.
bool read_adaptive_pool(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() != 4) return false;
  const Node* turned = importer.only_reader(node);
  const Node* second = swaps_last_axes(turned) ? importer.only_reader(*turned) : nullptr;
  const Node* last = second != nullptr ? importer.only_reader(*second) : nullptr;
  const TensorData* columns = averaging_by(importer, &node, shape[3]);
  const TensorData* rows = averaging_by(importer, second, shape[2]);
  if (columns == nullptr || rows == nullptr || !swaps_last_axes(last)) return false;
  importer.set(*last, importer.net().adaptive_average_pool(x, rows->shape[1], columns->shape[1]));
  for (const Node* done : {turned, second, last}) importer.set_done(*done);
  return true;
}

// With the addition of a bias that may follow it.
void read_matmul(Importer& importer, const Node& node) {
  if (read_adaptive_pool(importer, node)) return;
  const TensorData& weight = importer.need_constant(node, 1);
  const Node* next = importer.only_reader(node);
  if (next != nullptr && next->type == "Add") {
    const size_t other = next->inputs.at(0) == node.outputs.at(0) ? 1 : 0;
    const TensorData* bias = importer.constant(*next, other);
    if (bias != nullptr && weight.shape.size() == 2 &&
        graph::elements_of(bias->shape) == weight.shape[1]) {
      add_linear(importer, node, weight, false, bias, *next);
      return importer.set_done(*next);
    }
  }
  add_linear(importer, node, weight, false, nullptr, node);
}

void read_prelu(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  const TensorData& slopes = importer.need_constant(node, 1);
  if (shape.size() < 2) fail_input("it gets {}", graph::to_string(shape));
  const int64_t count = graph::elements_of(slopes.shape);
  if (count != 1) require_channels(slopes, shape[1]);
  const std::string name = importer.layer_name(node, &slopes);
  // One slope for all channels is read once for each.
  importer.take_weight(name + ".weight", slopes, {shape[1]}, {count == 1 ? 0 : 1});
  importer.set(node, importer.net().prelu(x, name));
}

template <graph::Value (graph::Builder::*layer)(graph::Value)>
void read_plain(Importer& importer, const Node& node) {
  importer.set(node, (importer.net().*layer)(importer.value(node, 0)));
}

// 0 to 6 or 0 and up, given as inputs, or as attributes before opset 11.
void read_clip(Importer& importer, const Node& node) {
  const auto bound = [&](size_t input, std::string_view name, double otherwise) {
    if (!importer.has_input(node, input)) return number_of(node, name, otherwise);
    const std::vector<float> numbers = importer.need_constant(node, input).numbers();
    if (numbers.size() != 1) fail_input("its bounds must be one number each");
    return static_cast<double>(numbers[0]);
  };
  constexpr double kOpen = 3e38;
  const double least = bound(1, "min", -kOpen), most = bound(2, "max", kOpen);
  if (least != 0 || (most != 6 && most < kOpen)) {
    fail_input("it cuts off at {} and {}; only 0 and 6 are supported", least, most);
  }
  const graph::Value x = importer.value(node, 0);
  importer.set(node, most == 6 ? importer.net().relu6(x) : importer.net().relu(x));
}

// Averages round the output's size up only where that changes nothing.
void add_pool(Importer& importer, const Node& node, const char* type,
              graph::Attributes attributes) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const graph::Shape image = net.shape(x);
  const Pair kernel = pair_attribute(node, "kernel_shape", 0, 1);
  const NodeWindow window = window_of(node, image, kernel);
  if (window.dilation != Pair{1, 1}) fail_input("dilated pooling is not supported");
  for (size_t i = 0; i < 2; ++i) {
    const int64_t way = image[i + 2] + 2 * window.padding[i] - kernel[i];
    if (integer_of(node, "ceil_mode", 0) == 0 || way % window.stride[i] == 0) continue;
    attributes.set("ceil", true);
    if (std::string_view(type) != "max_pool") {
      fail_input("its ceil_mode gives another size than rounding down, which is not supported");
    }
  }
  attributes.set("kernel", kernel);
  attributes.set("stride", window.stride);
  attributes.set("padding", window.padding);
  importer.set(node, net.apply(type, "", {x}, std::move(attributes)));
}

void read_max_pool(Importer& importer, const Node& node) {
  add_pool(importer, node, "max_pool", {});
}

void read_average_pool(Importer& importer, const Node& node) {
  add_pool(importer, node, "average_pool",
           {{"count_include_pad", integer_of(node, "count_include_pad", 0) != 0}});
}

// Over height and width; axes are an attribute or, from opset 18, an input.
void read_reduce_mean(Importer& importer, const Node& node) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  std::vector<int64_t> axes =
      importer.has_input(node, 1) ? importer.need_integers(node, 1) : integers_of(node, "axes", {});
  for (int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
  std::sort(axes.begin(), axes.end());
  if (axes != std::vector<int64_t>{2, 3}) {
    fail_input("it averages over other axes than height and width, which is not supported");
  }
  const graph::Value mean = net.global_average_pool(x);
  importer.set(node, integer_of(node, "keepdims", 1) != 0 ? mean : net.flatten(mean));
}

void read_add(Importer& importer, const Node& node) {
  if (node.inputs.size() != 2) fail_input("it adds {} tensors, not two", node.inputs.size());
  if (read_hard_gate(importer, node)) return;
  importer.set(node, importer.net().add(importer.value(node, 0), importer.value(node, 1)));
}

void read_dropout(Importer& importer, const Node& node) {
  double rate = number_of(node, "ratio", 0.5);
  if (importer.has_input(node, 1)) {
    const std::vector<float> numbers = importer.need_constant(node, 1).numbers();
    if (numbers.size() != 1) fail_input("its ratio must be one number");
    rate = numbers[0];
  }
  if (!(rate >= 0 && rate < 1)) fail_input("its ratio is {}", rate);
  const graph::Value x = importer.value(node, 0);
  const bool drops = importer.options().dropout && rate > 0;
  importer.set(node, drops ? importer.net().dropout(x, rate) : x);
}

void read_lp_normalization(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 2);
  const int64_t axis = integer_of(node, "axis", -1);
  if (integer_of(node, "p", 2) != 2 || (axis != 1 && axis != -1)) {
    fail_input("only rows of length 1 are supported");
  }
  importer.set(node, importer.net().l2_normalize(x));
}

// Only as a part of what other nodes are read as.
void read_transpose(Importer&, const Node&) { fail_input("it is not supported by itself"); }

// Scores stay scores: the loss has the softmax.
void read_softmax(Importer& importer, const Node& node) {
  if (!importer.is_last(node)) fail_input("it is supported at the end only");
  importer.set(node, importer.value(node, 0));
}

constexpr NodeReader kLayers[] = {
    {"Add", read_add},
    {"AveragePool", read_average_pool},
    {"BatchNormalization", read_batch_norm},
    {"Clip", read_clip},
    {"Conv", read_convolution},
    {"Dropout", read_dropout},
    {"Gemm", read_gemm},
    {"GlobalAveragePool", read_plain<&graph::Builder::global_average_pool>},
    {"LpNormalization", read_lp_normalization},
    {"MatMul", read_matmul},
    {"MaxPool", read_max_pool},
    {"PRelu", read_prelu},
    {"ReduceMean", read_reduce_mean},
    {"Relu", read_plain<&graph::Builder::relu>},
    {"Softmax", read_softmax},
    {"Sum", read_add},
    {"Tanh", read_plain<&graph::Builder::tanh>},
    {"Transpose", read_transpose},
};

}  // namespace

ReadNode find_layer_reader(std::string_view type) {
  for (const NodeReader& reader : kLayers) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
