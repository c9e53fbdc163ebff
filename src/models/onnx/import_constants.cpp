// Nodes that compute with constants alone: what weights and shapes are made with.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Numbers = std::vector<int64_t>;

constexpr int64_t kMostNumbers = 1 << 16;  // that are made of less

bool is_whole(const TensorData& data) {
  return data.type == ElementType::s64 || data.type == ElementType::s32;
}

int64_t extent_of(const TensorData& data) { return graph::elements_of(data.shape); }

TensorData reshaped(const TensorData& data, graph::Shape shape) {
  if (graph::elements_of(shape) != extent_of(data)) {
    fail_input("{} cannot become {}", graph::to_string(data.shape), graph::to_string(shape));
  }
  TensorData result = data;
  result.shape = std::move(shape);
  return result;
}

int64_t axis_of(int64_t axis, size_t rank) {
  const auto axes = static_cast<int64_t>(rank);
  if (axis < -axes || axis >= axes) fail_input("there is no axis {}", axis);
  return axis < 0 ? axis + axes : axis;
}

Numbers axes_of(Importer& importer, const Node& node, size_t rank) {
  Numbers axes =
      importer.has_input(node, 1) ? importer.need_integers(node, 1) : integers_of(node, "axes", {});
  for (int64_t& axis : axes) axis = axis_of(axis, rank);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) fail_input("it names axes twice");
  return axes;
}

TensorData fold_identity(Importer& importer, const Node& node) {
  return importer.need_constant(node, 0);
}

TensorData fold_cast(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  const auto to = static_cast<ElementType>(integer_of(node, "to", 0));
  if (to == data.type) return data;
  const bool is_float = to == ElementType::f32 || to == ElementType::f16 ||
                        to == ElementType::bf16 || to == ElementType::f64;
  if (!is_float && to != ElementType::s64 && to != ElementType::s32) {
    fail_input("only numbers are supported");
  }
  if (is_float) {
    if (!is_whole(data)) return TensorData::of(data.name, data.shape, data.numbers());
    const Numbers numbers = data.integers();
    return TensorData::of(data.name, data.shape,
                          std::vector<float>(numbers.begin(), numbers.end()));
  }
  if (is_whole(data)) return TensorData::of("", data.shape, data.integers());
  Numbers numbers;
  for (const float number : data.numbers()) {
    if (!(std::abs(number) < 1e15f)) fail_input("{} is no whole number", number);
    numbers.push_back(static_cast<int64_t>(number));
  }
  return TensorData::of("", data.shape, numbers);
}

TensorData fold_reshape(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  graph::Shape to = importer.has_input(node, 1) ? importer.need_integers(node, 1)
                                                : integers_of(node, "shape", {});
  int64_t rest = -1, known = 1;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 0 && i < data.shape.size()) to[i] = data.shape[i];
    if (to[i] < -1 || (to[i] == -1 && rest >= 0)) fail_input("it asks for the extents wrongly");
    if (to[i] == -1) {
      rest = static_cast<int64_t>(i);
    } else if (to[i] > extent_of(data) / std::max<int64_t>(1, known)) {
      fail_input("{} cannot become {}", graph::to_string(data.shape), graph::to_string(to));
    } else {
      known *= to[i];
    }
  }
  if (rest >= 0) to[static_cast<size_t>(rest)] = extent_of(data) / std::max<int64_t>(1, known);
  return reshaped(data, std::move(to));
}

TensorData fold_squeeze(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  const Numbers axes = axes_of(importer, node, data.shape.size());
  graph::Shape shape;
  for (size_t i = 0; i < data.shape.size(); ++i) {
    const bool named = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    if (axes.empty() ? data.shape[i] != 1 : !named) shape.push_back(data.shape[i]);
  }
  return reshaped(data, std::move(shape));
}

TensorData fold_unsqueeze(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  const size_t added = importer.has_input(node, 1) ? importer.need_integers(node, 1).size()
                                                   : integers_of(node, "axes", {}).size();
  graph::Shape shape = data.shape;
  for (const int64_t axis : axes_of(importer, node, data.shape.size() + added)) {
    shape.insert(shape.begin() + std::min<int64_t>(axis, std::ssize(shape)), 1);
  }
  return reshaped(data, std::move(shape));
}

// Elements of a constant in the order of a view of it.
template <typename Number>
std::vector<Number> seen(const std::vector<Number>& values, const graph::Shape& shape,
                         const Numbers& strides) {
  std::vector<Number> result(static_cast<size_t>(graph::elements_of(shape)));
  Numbers at(shape.size(), 0);
  int64_t place = 0;
  for (Number& value : result) {
    value = values[static_cast<size_t>(place)];
    for (size_t i = shape.size(); i-- > 0;) {
      place += strides[i];
      if (++at[i] < shape[i]) break;
      place -= strides[i] * shape[i];
      at[i] = 0;
    }
  }
  return result;
}

TensorData view_of(const TensorData& data, const graph::Shape& shape, const Numbers& strides) {
  if (is_whole(data)) return TensorData::of("", shape, seen(data.integers(), shape, strides));
  return TensorData::of("", shape, seen(data.numbers(), shape, strides));
}

Numbers plain_strides(const graph::Shape& shape) {
  Numbers strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

TensorData fold_transpose(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  const size_t rank = data.shape.size();
  Numbers order = integers_of(node, "perm", {});
  if (order.empty()) {
    for (size_t i = rank; i-- > 0;) order.push_back(static_cast<int64_t>(i));
  }
  Numbers sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i) {
    if (sorted.size() != rank || sorted[i] != static_cast<int64_t>(i)) {
      fail_input("its perm is no order of {} axes", rank);
    }
  }
  const Numbers from = plain_strides(data.shape);
  graph::Shape shape;
  Numbers strides;
  for (const int64_t axis : order) {
    shape.push_back(data.shape[static_cast<size_t>(axis)]);
    strides.push_back(from[static_cast<size_t>(axis)]);
  }
  TensorData result = view_of(data, shape, strides);
  result.name = data.name;  // the layer that it is a weight of is called so
  return result;
}

TensorData fold_concat(Importer& importer, const Node& node) {
  Numbers joined;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Numbers numbers = importer.need_integers(node, i);
    joined.insert(joined.end(), numbers.begin(), numbers.end());
    if (std::ssize(joined) > kMostNumbers) break;
  }
  return list_of(joined);
}

TensorData fold_gather(Importer& importer, const Node& node) {
  const Numbers list = importer.need_integers(node, 0);
  const TensorData& indices = importer.need_constant(node, 1);
  Numbers taken;
  for (int64_t index : indices.integers()) {
    index += index < 0 ? std::ssize(list) : 0;
    if (index < 0 || index >= std::ssize(list)) fail_input("its index is out of range");
    taken.push_back(list[static_cast<size_t>(index)]);
  }
  return TensorData::of("", indices.shape, taken);
}

// Of a list; bounds and steps are inputs or, before opset 10, attributes.
TensorData fold_slice(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  if (data.shape.size() != 1) fail_input("only lists can be cut here");
  const auto one = [&](size_t input, const char* name, int64_t otherwise) {
    const Numbers numbers = importer.has_input(node, input) ? importer.need_integers(node, input)
                                                            : integers_of(node, name, {otherwise});
    if (numbers.size() != 1) fail_input("only lists can be cut here");
    return numbers[0];
  };
  const Numbers list = data.integers();
  const int64_t step = one(4, "steps", 1), size = std::ssize(list);
  if (step < 1) fail_input("it steps backwards");
  const auto place = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  Numbers taken;
  const int64_t end = place(one(2, "ends", size));
  for (int64_t at = place(one(1, "starts", 0)); at < end;) {
    taken.push_back(list[static_cast<size_t>(at)]);
    if (step >= size - at) break;
    at += step;
  }
  return list_of(taken);
}

TensorData fold_constant_of_shape(Importer& importer, const Node& node) {
  graph::Shape shape = importer.need_integers(node, 0);
  int64_t elements = 1;
  for (const int64_t extent : shape) {
    if (extent < 0 || extent > kMostNumbers / std::max<int64_t>(1, elements)) {
      fail_input("it asks for {}", graph::to_string(shape));
    }
    elements *= extent;
  }
  const NodeAttribute* value = node.find("value");
  const bool is_tensor = value != nullptr && value->kind == NodeAttribute::Kind::tensor;
  const auto count = static_cast<size_t>(elements);
  if (is_tensor && extent_of(value->tensor) != 1) fail_input("its value must be one number");
  if (is_tensor && is_whole(value->tensor)) {
    return TensorData::of("", shape, Numbers(count, value->tensor.integers().at(0)));
  }
  const float number = is_tensor ? value->tensor.numbers().at(0) : 0;
  return TensorData::of("", shape, std::vector<float>(count, number));
}

TensorData fold_product(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  const Numbers axes = axes_of(importer, node, data.shape.size());
  if (data.shape.size() != 1 || integer_of(node, "keepdims", 1) < 0) {
    fail_input("only lists can be multiplied here");
  }
  uint64_t product = 1;
  for (const int64_t number : data.integers()) product *= static_cast<uint64_t>(number);
  const graph::Shape shape =
      integer_of(node, "keepdims", 1) != 0 ? graph::Shape{1} : graph::Shape();
  return TensorData::of("", shape, Numbers{static_cast<int64_t>(product)});
}

// Strides of a tensor that is repeated along axes to become `shape`.
Numbers repeating(const graph::Shape& from, const graph::Shape& shape) {
  const Numbers plain = plain_strides(from);
  Numbers strides(shape.size(), 0);
  const size_t before = shape.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) strides[before + i] = from[i] == 1 ? 0 : plain[i];
  return strides;
}

graph::Shape joint_shape(const graph::Shape& a, const graph::Shape& b) {
  graph::Shape shape(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto at = [&](const graph::Shape& from) {
      const size_t missing = shape.size() - from.size();
      return i < missing ? 1 : from[i - missing];
    };
    if (at(a) != at(b) && at(a) != 1 && at(b) != 1) {
      fail_input("{} and {} do not fit", graph::to_string(a), graph::to_string(b));
    }
    shape[i] = at(a) == 1 ? at(b) : at(a);
  }
  return shape;
}

template <typename Number>
Number combined(const std::string& type, Number a, Number b) {
  if (type == "Mul") return a * b;
  if (type == "Div") return a / b;
  if (type == "Max") return std::max(a, b);
  if (type == "Min") return std::min(a, b);
  return type == "Add" ? a + b : a - b;
}

TensorData fold_arithmetic(Importer& importer, const Node& node) {
  if (node.inputs.size() != 2) fail_input("it has {} inputs, not two", node.inputs.size());
  const TensorData &a = importer.need_constant(node, 0), &b = importer.need_constant(node, 1);
  const graph::Shape shape = joint_shape(a.shape, b.shape);
  int64_t room = std::max({extent_of(a), extent_of(b), kMostNumbers});
  for (const int64_t extent : shape) {
    if (extent > room) fail_input("it makes {} of little", graph::to_string(shape));
    room /= std::max<int64_t>(1, extent);
  }
  if (is_whole(a) && is_whole(b)) {
    Numbers left = seen(a.integers(), shape, repeating(a.shape, shape));
    const Numbers right = seen(b.integers(), shape, repeating(b.shape, shape));
    for (size_t i = 0; i < left.size(); ++i) {
      if (node.type == "Div" && (right[i] == 0 || right[i] == -1))
        fail_input("it divides by {}", right[i]);
      if (node.type == "Div") {
        left[i] /= right[i];
      } else if (node.type == "Max" || node.type == "Min") {
        left[i] = combined(node.type, left[i], right[i]);
      } else {  // wraps around, as unsigned numbers do
        left[i] = static_cast<int64_t>(
            combined(node.type, static_cast<uint64_t>(left[i]), static_cast<uint64_t>(right[i])));
      }
    }
    return TensorData::of("", shape, left);
  }
  std::vector<float> left = seen(a.numbers(), shape, repeating(a.shape, shape));
  const std::vector<float> right = seen(b.numbers(), shape, repeating(b.shape, shape));
  for (size_t i = 0; i < left.size(); ++i) left[i] = combined(node.type, left[i], right[i]);
  return TensorData::of("", shape, left);
}

TensorData fold_function(Importer& importer, const Node& node) {
  const TensorData& data = importer.need_constant(node, 0);
  std::vector<float> values = data.numbers();
  for (float& value : values) {
    if (node.type == "Neg") value = -value;
    if (node.type == "Ceil") value = std::ceil(value);
    if (node.type == "Floor") value = std::floor(value);
    if (node.type == "Sqrt") value = std::sqrt(value);
    if (node.type == "Reciprocal") value = 1 / value;
  }
  return TensorData::of("", data.shape, values);
}

using Fold = TensorData (*)(Importer& importer, const Node& node);
constexpr struct {
  std::string_view type;
  Fold fold;
} kFolds[] = {
    {"Add", fold_arithmetic},
    {"Cast", fold_cast},
    {"Ceil", fold_function},
    {"Concat", fold_concat},
    {"ConstantOfShape", fold_constant_of_shape},
    {"Div", fold_arithmetic},
    {"Floor", fold_function},
    {"Gather", fold_gather},
    {"Identity", fold_identity},
    {"Max", fold_arithmetic},
    {"Min", fold_arithmetic},
    {"Mul", fold_arithmetic},
    {"Neg", fold_function},
    {"Reciprocal", fold_function},
    {"ReduceProd", fold_product},
    {"Reshape", fold_reshape},
    {"Slice", fold_slice},
    {"Sqrt", fold_function},
    {"Squeeze", fold_squeeze},
    {"Sub", fold_arithmetic},
    {"Transpose", fold_transpose},
    {"Unsqueeze", fold_unsqueeze},
};

}  // namespace

TensorData list_of(const std::vector<int64_t>& numbers) {
  if (std::ssize(numbers) > kMostNumbers) fail_input("its list of numbers is too long");
  return TensorData::of("", {std::ssize(numbers)}, numbers);
}

bool folds_constants(std::string_view type) {
  return std::any_of(std::begin(kFolds), std::end(kFolds),
                     [&](const auto& row) { return row.type == type; });
}

bool fold_constants(Importer& importer, const Node& node) {
  const auto found = std::find_if(std::begin(kFolds), std::end(kFolds),
                                  [&](const auto& row) { return row.type == node.type; });
  if (found == std::end(kFolds) || node.inputs.empty()) return false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (importer.has_input(node, i) && importer.constant(node, i) == nullptr) return false;
  }
  importer.set(node, found->fold(importer, node));
  return true;
}

}  // namespace millrace::models::onnx
