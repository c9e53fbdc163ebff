// Nodes that only change shapes, and those that exporters compute the shapes with.
#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

// Whether what lies behind the batch may be laid in a row: to N x features.
bool is_row(const graph::Shape& from, const std::vector<int64_t>& to) {
  if (from.size() < 2 || to.size() != 2) return false;
  const int64_t features = graph::elements_of(from) / from[0];
  return to[1] == features || (to[1] == -1 && to[0] != -1);
}

// Whether rows go through linear layers and become factors of images: what attention to channels
// is made of.
bool become_images(const Importer& importer, const Node& node) {
  constexpr std::string_view kBetween[] = {
      "Add", "BatchNormalization", "Clip", "HardSigmoid", "Identity", "PRelu", "Relu", "Sigmoid",
      "Tanh"};
  bool has_linear = false;
  const Node* next = importer.only_reader(node);
  for (; next != nullptr; next = importer.only_reader(*next)) {
    if (next->type == "Reshape" || next->type == "Unsqueeze") break;
    const bool is_linear = next->type == "Gemm" || next->type == "MatMul";
    has_linear = has_linear || is_linear;
    if (!is_linear &&
        std::find(std::begin(kBetween), std::end(kBetween), next->type) == std::end(kBetween)) {
      return false;
    }
  }
  const Node* last = next != nullptr && has_linear ? importer.only_reader(*next) : nullptr;
  return last != nullptr && (last->type == "Mul" || last->type == "Expand" ||
                             last->type == "Sigmoid" || last->type == "HardSigmoid");
}

void read_flatten(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const auto rank = static_cast<int64_t>(importer.net().shape(x).size());
  const int64_t axis = integer_of(node, "axis", 1);
  if (axis != 1 && axis != 1 - rank) fail_input("only axis 1 is supported");
  set_row(importer, node, x);
}

// A reshape to rows, as views become; the extents that the file was exported with say nothing of
// the batch.
void read_reshape(Importer& importer, const Node& node) {
  const std::vector<int64_t> to = importer.has_input(node, 1) ? importer.need_integers(node, 1)
                                                              : integers_of(node, "shape", {});
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& from = importer.net().shape(x);
  if (is_row(from, to)) return set_row(importer, node, x);
  if (read_shuffle(importer, node, x, to)) return;
  const bool same =
      to.size() == from.size() && std::equal(from.begin() + 1, from.end(), to.begin() + 1);
  if (!same) fail_input("it reshapes {} to other than rows", graph::to_string(from));
  importer.set(node, x);
}

void read_identity(Importer& importer, const Node& node) {
  importer.set(node, importer.value(node, 0));
}

void read_constant(Importer& importer, const Node& node) {
  const NodeAttribute* tensor = node.find("value");
  if (tensor != nullptr && tensor->kind == NodeAttribute::Kind::tensor) {
    return importer.set(node, tensor->tensor);
  }
  if (const NodeAttribute* found = node.find("value_int")) {
    return importer.set(node, TensorData::of("", {}, std::vector<int64_t>{found->integer}));
  }
  if (const NodeAttribute* found = node.find("value_float")) {
    return importer.set(
        node, TensorData::of("", {}, std::vector<float>{static_cast<float>(found->number)}));
  }
  if (const NodeAttribute* found = node.find("value_ints")) {
    return importer.set(node, list_of(found->integers));
  }
  fail_input("only numbers and tensors are supported");
}

void read_shape(Importer& importer, const Node& node) {
  const graph::Shape& shape = importer.net().shape(importer.value(node, 0));
  const auto rank = static_cast<int64_t>(shape.size());
  const auto place = [&](std::string_view name, int64_t otherwise) {
    const int64_t at = integer_of(node, name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = place("start", 0), end = std::max(begin, place("end", rank));
  importer.set(node, list_of({shape.begin() + begin, shape.begin() + end}));
}

// Of images of 1x1: rows, and rows that stayed images.
void read_squeeze(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() != 4 || shape[2] != 1 || shape[3] != 1) {
    fail_input("it is supported for images of 1x1 only");
  }
  if (node.type == "Unsqueeze") return importer.set(node, x);
  // One axis after the other.
  const Node* next = importer.only_reader(node);
  const Node* last = next != nullptr && next->type == "Squeeze" ? next : &node;
  if (last != &node) importer.set_done(*last);
  set_row(importer, *last, x);
}

// Factors of channels, made as large as the images that they are multiplied with.
void read_expand(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  const Node* next = importer.only_reader(node);
  if (shape.size() != 4 || shape[2] != 1 || shape[3] != 1 || next == nullptr ||
      next->type != "Mul") {
    fail_input("it is supported for factors of channels only");
  }
  importer.set(node, x);
}

bool has_order(const Node& node, const std::vector<int64_t>& order) {
  return integers_of(node, "perm", {}) == order;
}

// As TensorFlow's networks have them: images whose channels come last are turned at once, and means
// over them are taken from turned ones.
void read_transpose(Importer& importer, const Node& node) {
  if (read_pixels(importer, node)) return;
  const graph::Value x = importer.value(node, 0);
  if (importer.is_turned_input(node)) return importer.set(node, x);
  const Node* next = importer.only_reader(node);
  const graph::Shape& shape = importer.net().shape(x);
  if (shape.size() == 4 && has_order(node, {0, 2, 3, 1}) && next != nullptr) {
    const bool is_mean = next->type == "ReduceMean" && integer_of(*next, "keepdims", 1) == 0;
    if (is_mean && axes_of_mean(importer, *next) == std::vector<int64_t>{1, 2}) {
      importer.set(*next, importer.net().flatten(importer.net().global_average_pool(x)));
      return importer.set_done(*next);
    }
    if (shape[2] == 1 && shape[3] == 1 && (next->type == "Reshape" || next->type == "Flatten")) {
      return importer.set(node, x);
    }
  }
  fail_input("it is not supported by itself");
}

void read_concat(Importer& importer, const Node& node) {
  std::vector<graph::Value> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(importer.value(node, i));
  if (parts.empty()) fail_input("it joins nothing");
  int64_t axis = integer_of(node, "axis", 1);
  axis += axis < 0 ? static_cast<int64_t>(importer.net().shape(parts[0]).size()) : 0;
  importer.set(node, importer.net().concat(parts, axis));
}

// Numbers are computed with as float32, whatever the file has them in.
void read_cast(Importer& importer, const Node& node) {
  using enum ElementType;
  const auto to = static_cast<ElementType>(integer_of(node, "to", 0));
  if (to != f32 && to != f16 && to != bf16 && to != f64) {
    fail_input("only numbers with fractions are supported");
  }
  importer.set(node, importer.value(node, 0));
}

constexpr NodeReader kShapeReaders[] = {
    {"Cast", read_cast},           {"Concat", read_concat},     {"Constant", read_constant},
    {"Expand", read_expand},       {"Flatten", read_flatten},   {"Identity", read_identity},
    {"Reshape", read_reshape},     {"Shape", read_shape},       {"Squeeze", read_squeeze},
    {"Transpose", read_transpose}, {"Unsqueeze", read_squeeze},
};

}  // namespace

void set_row(Importer& importer, const Node& node, graph::Value x) {
  const graph::Shape& shape = importer.net().shape(x);
  const bool stays = shape.size() == 2 || (shape.size() == 4 && shape[2] == 1 && shape[3] == 1 &&
                                           become_images(importer, node));
  importer.set(node, stays ? x : importer.net().flatten(x));
}

ReadNode find_shape_reader(std::string_view type) {
  for (const NodeReader& reader : kShapeReaders) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
