// One function for each kind of node that becomes a layer, and the list of them.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/exporter.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Pair = std::vector<int64_t>;

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

// What a linear layer is made with: a weight of out x in if `transposed`, else of in x out.
struct LinearNode {
  const TensorData& weight;
  bool transposed = false;
  const TensorData* bias = nullptr;
  double alpha = 1, beta = 1;
};

// The weight times a number for each output, as out x in.
TensorData scaled_weight(const LinearNode& linear, const std::vector<float>& factors, int64_t in) {
  const std::vector<float> old = linear.weight.numbers();
  const std::ptrdiff_t out = std::ssize(factors);
  std::vector<float> values(old.size());
  for (std::ptrdiff_t i = 0; i < std::ssize(values); ++i) {
    const std::ptrdiff_t row = i / in, column = i % in;
    const auto from = static_cast<size_t>(linear.transposed ? i : column * out + row);
    values[static_cast<size_t>(i)] = old[from] * factors[static_cast<size_t>(row)];
  }
  return TensorData::of(linear.weight.name, {out, in}, values);
}

// Of rows, or of images of 1x1 that stay such; with sums and products by constants behind it.
void add_linear(Importer& importer, const Node& node, const LinearNode& linear) {
  graph::Builder& net = importer.net();
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& from = net.shape(x);
  const bool is_image = from.size() == 4 && from[2] == 1 && from[3] == 1;
  if (!is_image) require_rank(importer, x, 2);
  const graph::Shape& shape = linear.weight.shape;
  if (shape.size() != 2) fail_input("its weights are {}", graph::to_string(shape));
  const int64_t in = shape[linear.transposed ? 1 : 0], out = shape[linear.transposed ? 0 : 1];
  if (from[1] != in) {
    fail_input("its weights are for {} features, but images of this size give it {}", in, from[1]);
  }
  if (linear.bias != nullptr && graph::elements_of(linear.bias->shape) != 1) {
    require_channels(*linear.bias, out);
  }
  const std::string name = importer.layer_name(node, &linear.weight);
  Scaling behind = scaling_behind(importer, node, out, 2);
  const Node& gives = behind.last == nullptr ? node : *behind.last;
  std::vector<float> of_bias = behind.factors;
  for (float& factor : of_bias) factor *= static_cast<float>(linear.beta);
  for (float& factor : behind.factors) factor *= static_cast<float>(linear.alpha);

  const graph::Shape stored = is_image ? graph::Shape{out, in, 1, 1} : graph::Shape{out, in};
  TensorData weight = linear.weight;
  Pair strides = linear.transposed ? Pair{in, 1} : Pair{1, out};
  if (behind.scales()) {
    weight = scaled_weight(linear, behind.factors, in);
    strides = {in, 1};
  }
  strides.resize(stored.size(), 1);
  importer.take_weight(name + ".weight", weight, stored, std::move(strides));
  const bool has_bias = linear.bias != nullptr || behind.shifts();
  if (has_bias) {
    behind.factors = std::move(of_bias);
    importer.take_weight(name + ".bias", behind.bias(name + ".bias", linear.bias));
  }
  if (is_image) {
    return importer.set(gives, net.convolution(x, name, {.channels = out, .bias = has_bias}));
  }
  const int64_t classes = importer.options().classes;
  const bool replaced = classes > 0 && importer.is_last(gives);
  if (replaced) importer.set_features(out);
  importer.set(gives,
               net.linear(x, name, {.features = replaced ? classes : out, .bias = has_bias}));
}

void read_gemm(Importer& importer, const Node& node) {
  if (integer_of(node, "transA", 0) != 0) fail_input("a transA of 1 is not supported");
  LinearNode linear = {.weight = importer.need_constant(node, 1),
                       .transposed = integer_of(node, "transB", 0) != 0,
                       .alpha = number_of(node, "alpha", 1),
                       .beta = number_of(node, "beta", 1)};
  if (importer.has_input(node, 2) && linear.beta != 0)
    linear.bias = &importer.need_constant(node, 2);
  add_linear(importer, node, linear);
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

void read_matmul(Importer& importer, const Node& node) {
  if (read_adaptive_pool(importer, node)) return;
  add_linear(importer, node, {.weight = importer.need_constant(node, 1)});
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

// Over height and width, in one node or in two.
void read_reduce_mean(Importer& importer, const Node& node) {
  if (read_pixels(importer, node)) return;
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const bool keeps = integer_of(node, "keepdims", 1) != 0;
  std::vector<int64_t> axes = axes_of_mean(importer, node);
  const Node* last = &node;
  const Node* next = importer.only_reader(node);
  const bool in_two = next != nullptr && next->type == "ReduceMean" && axes.size() == 1 &&
                      axes[0] >= 2 && (integer_of(*next, "keepdims", 1) != 0) == keeps;
  if (in_two) {
    const std::vector<int64_t> more = axes_of_mean(importer, *next, keeps ? 4 : 3);
    axes.insert(axes.end(), more.begin(), more.end());
    std::sort(axes.begin(), axes.end());
    if (!keeps && axes == Pair{2, 2}) axes = {2, 3};  // the axis behind has moved up
    last = next;
  }
  if (axes != Pair{2, 3}) {
    fail_input("it averages over other axes than height and width, which is not supported");
  }
  if (in_two) importer.set_done(*next);
  const graph::Value mean = importer.net().global_average_pool(x);
  if (keeps) return importer.set(*last, mean);
  set_row(importer, *last, mean);
}

void read_reduce_max(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  if (axes_of_mean(importer, node) != Pair{2, 3}) {
    fail_input(
        "it takes the largest over other axes than height and width, which is not supported");
  }
  const graph::Value most = largest_of_images(importer, x);
  if (integer_of(node, "keepdims", 1) != 0) return importer.set(node, most);
  set_row(importer, node, most);
}

void read_add(Importer& importer, const Node& node) {
  if (read_pixels(importer, node) || read_hard_gate(importer, node) ||
      read_scaling(importer, node)) {
    return;
  }
  graph::Value sum = importer.value(node, 0);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    sum = importer.net().add(sum, importer.value(node, i));
  }
  importer.set(node, sum);
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

// Rows divided by their length, as F.normalize is written out.
void read_length(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 2);
  const Node* last = importer.only_reader(node);
  std::vector<const Node*> between;
  for (; last != nullptr && last->type != "Div"; last = importer.only_reader(*last)) {
    if (last->type != "Clip" && last->type != "Max" && last->type != "Expand" &&
        last->type != "Add")
      break;
    between.push_back(last);
  }
  const bool divides =
      last != nullptr && last->type == "Div" && last->inputs.at(0) == node.inputs[0];
  if (!divides || axes_of_mean(importer, node, 2) != Pair{1}) {
    fail_input("it is supported only where rows are divided by their length");
  }
  for (const Node* done : between) importer.set_done(*done);
  importer.set_done(*last);
  importer.set(*last, importer.net().l2_normalize(x));
}

// Scores stay scores: the loss has the softmax.
void read_softmax(Importer& importer, const Node& node) {
  if (!importer.is_last(node)) fail_input("it is supported at the end only");
  importer.set(node, importer.value(node, 0));
}

constexpr NodeReader kLayers[] = {
    {"Add", read_add},
    {"BatchNormalization", read_batch_norm},
    {"Dropout", read_dropout},
    {"Gemm", read_gemm},
    {"GlobalAveragePool", read_plain<&graph::Builder::global_average_pool>},
    {"LogSoftmax", read_softmax},
    {"LpNormalization", read_lp_normalization},
    {"MatMul", read_matmul},
    {"PRelu", read_prelu},
    {"ReduceL2", read_length},
    {"ReduceMax", read_reduce_max},
    {"ReduceMean", read_reduce_mean},
    {"Softmax", read_softmax},
    {"Sum", read_add},
    {"Tanh", read_plain<&graph::Builder::tanh>},
};

}  // namespace

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

std::vector<int64_t> axes_of_mean(Importer& importer, const Node& node, int64_t rank) {
  std::vector<int64_t> axes =
      importer.has_input(node, 1) ? importer.need_integers(node, 1) : integers_of(node, "axes", {});
  for (int64_t& axis : axes) axis += axis < 0 ? rank : 0;
  std::sort(axes.begin(), axes.end());
  return axes;
}

ReadNode find_layer_reader(std::string_view type) {
  for (const NodeReader& reader : kLayers) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
