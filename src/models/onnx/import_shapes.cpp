// Nodes that only change shapes, and those that exporters compute the shapes with.
#include <algorithm>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

constexpr size_t kMostNumbers = 1 << 16;  // in a list that shapes are made of

TensorData list_of(const std::vector<int64_t>& numbers) {
  if (numbers.size() > kMostNumbers) fail_input("its list of numbers is too long");
  return TensorData::of("", {static_cast<int64_t>(numbers.size())}, numbers);
}

// Whether what lies behind the batch may be laid in a row: to N x features.
bool is_row(const graph::Shape& from, const std::vector<int64_t>& to) {
  if (from.size() < 2 || to.size() != 2) return false;
  const int64_t features = graph::elements_of(from) / from[0];
  return to[1] == features || (to[1] == -1 && to[0] != -1);
}

void set_row(Importer& importer, const Node& node, graph::Value x) {
  importer.set(node, importer.net().shape(x).size() == 2 ? x : importer.net().flatten(x));
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
  if (importer.constant(node, 0) != nullptr) {
    TensorData data = importer.need_constant(node, 0);
    if (data.shape.size() > 1 || to.size() > 1) fail_input("constants cannot be reshaped here");
    return importer.set(node, std::move(data));
  }
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& from = importer.net().shape(x);
  if (is_row(from, to)) return set_row(importer, node, x);
  const bool same =
      to.size() == from.size() && std::equal(from.begin() + 1, from.end(), to.begin() + 1);
  if (!same) fail_input("it reshapes {} to other than rows", graph::to_string(from));
  importer.set(node, x);
}

void read_identity(Importer& importer, const Node& node) {
  if (const TensorData* data = importer.constant(node, 0)) return importer.set(node, *data);
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

void read_gather(Importer& importer, const Node& node) {
  const std::vector<int64_t> list = importer.need_integers(node, 0);
  const TensorData& indices = importer.need_constant(node, 1);
  std::vector<int64_t> taken;
  for (int64_t index : indices.integers()) {
    index += index < 0 ? static_cast<int64_t>(list.size()) : 0;
    if (index < 0 || index >= static_cast<int64_t>(list.size()))
      fail_input("its index is out of range");
    taken.push_back(list[static_cast<size_t>(index)]);
  }
  importer.set(node, TensorData::of("", indices.shape, taken));
}

// Of a list: the same numbers. Of images of 1x1: rows.
void read_squeeze(Importer& importer, const Node& node) {
  if (importer.constant(node, 0) != nullptr) {
    const TensorData& data = importer.need_constant(node, 0);
    const bool is_list = data.type == ElementType::s64 || data.type == ElementType::s32;
    if (!is_list) return importer.set(node, data);  // a weight, whose layer knows its shape
    const std::vector<int64_t> numbers = data.integers();
    const bool is_scalar = node.type == "Squeeze" && numbers.size() == 1;
    return importer.set(node, is_scalar ? TensorData::of("", {}, numbers) : list_of(numbers));
  }
  const graph::Value x = importer.value(node, 0);
  const graph::Shape& shape = importer.net().shape(x);
  if (node.type != "Squeeze" || shape.size() != 4 || shape[2] != 1 || shape[3] != 1) {
    fail_input("it is supported for images of 1x1 only");
  }
  set_row(importer, node, x);
}

void read_concat(Importer& importer, const Node& node) {
  if (importer.constant(node, 0) != nullptr) {
    std::vector<int64_t> joined;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::vector<int64_t> numbers = importer.need_integers(node, i);
      joined.insert(joined.end(), numbers.begin(), numbers.end());
    }
    return importer.set(node, list_of(joined));
  }
  std::vector<graph::Value> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(importer.value(node, i));
  if (parts.empty()) fail_input("it joins nothing");
  int64_t axis = integer_of(node, "axis", 1);
  axis += axis < 0 ? static_cast<int64_t>(importer.net().shape(parts[0]).size()) : 0;
  importer.set(node, importer.net().concat(parts, axis));
}

void read_cast(Importer& importer, const Node& node) {
  const int64_t to = integer_of(node, "to", 0);
  if (importer.constant(node, 0) == nullptr) {
    if (to != static_cast<int64_t>(ElementType::f32)) fail_input("only float32 is supported");
    return importer.set(node, importer.value(node, 0));
  }
  const TensorData& data = importer.need_constant(node, 0);
  if (to == static_cast<int64_t>(data.type)) return importer.set(node, data);
  if (to != static_cast<int64_t>(ElementType::s64)) fail_input("only whole numbers are supported");
  importer.set(node, TensorData::of("", data.shape, data.integers()));
}

void read_pad(Importer& importer, const Node& node) {
  const std::vector<int64_t> pads =
      importer.has_input(node, 1) ? importer.need_integers(node, 1) : integers_of(node, "pads", {});
  if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; })) {
    fail_input("padding by itself is not supported");
  }
  importer.set(node, importer.value(node, 0));
}

constexpr NodeReader kShapeReaders[] = {
    {"Cast", read_cast},       {"Concat", read_concat},     {"Constant", read_constant},
    {"Flatten", read_flatten}, {"Gather", read_gather},     {"Identity", read_identity},
    {"Pad", read_pad},         {"Reshape", read_reshape},   {"Shape", read_shape},
    {"Squeeze", read_squeeze}, {"Unsqueeze", read_squeeze},
};

}  // namespace

ReadNode find_shape_reader(std::string_view type) {
  for (const NodeReader& reader : kShapeReaders) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
