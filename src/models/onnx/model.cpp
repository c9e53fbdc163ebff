#include "models/onnx/model.h"

#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "models/onnx/wire.h"

namespace millrace::models::onnx {
namespace {

using Kind = NodeAttribute::Kind;

// Protobuf's messages are shorter than this.
constexpr uint64_t kMostBytes = (uint64_t{1} << 31) - 1;

template <typename Element, typename Number>
void copy_numbers(std::span<const std::byte> bytes, std::vector<Number>& numbers) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + at, sizeof(element));
    numbers.push_back(static_cast<Number>(element));
  }
}

template <typename Number>
TensorData own_tensor(std::string name, ElementType type, graph::Shape shape,
                      std::span<const Number> values) {
  const auto bytes = std::as_bytes(values);
  auto own = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  TensorData tensor = {.name = std::move(name), .type = type, .shape = std::move(shape)};
  tensor.bytes = *own;
  tensor.own = std::move(own);
  return tensor;
}

WireWriter to_message(const TensorData& tensor) {
  WireWriter message;
  for (const int64_t extent : tensor.shape) message.integer(1, extent);
  message.integer(2, static_cast<int64_t>(tensor.type));
  message.text(8, tensor.name);
  message.borrowed(9, tensor.bytes);
  return message;
}

// The number of each kind in the field `type`, which readers look at.
int64_t number_of(Kind kind) {
  switch (kind) {
    case Kind::number:
      return 1;
    case Kind::integer:
      return 2;
    case Kind::text:
      return 3;
    case Kind::tensor:
      return 4;
    case Kind::numbers:
      return 6;
    default:
      return 7;
  }
}

WireWriter to_message(const NodeAttribute& attribute) {
  WireWriter message;
  message.text(1, attribute.name);
  if (attribute.kind == Kind::number) message.single(2, static_cast<float>(attribute.number));
  if (attribute.kind == Kind::integer) message.integer(3, attribute.integer);
  if (attribute.kind == Kind::text) message.text(4, attribute.text);
  if (attribute.kind == Kind::tensor) message.message(5, to_message(attribute.tensor));
  for (const float number : attribute.numbers) message.single(7, number);
  for (const int64_t number : attribute.integers) message.integer(8, number);
  message.integer(20, number_of(attribute.kind));
  return message;
}

WireWriter to_message(const Node& node) {
  WireWriter message;
  for (const std::string& name : node.inputs) message.text(1, name);
  for (const std::string& name : node.outputs) message.text(2, name);
  message.text(3, node.name);
  message.text(4, node.type);
  for (const NodeAttribute& attribute : node.attributes) message.message(5, to_message(attribute));
  return message;
}

WireWriter to_message(const ValueInfo& value) {
  WireWriter shape;
  for (const Extent& extent : value.shape) {
    WireWriter dim;
    if (extent.symbol.empty()) {
      dim.integer(1, extent.number);
    } else {
      dim.text(2, extent.symbol);
    }
    shape.message(1, std::move(dim));
  }
  WireWriter tensor, type, message;
  tensor.integer(1, static_cast<int64_t>(value.type));
  tensor.message(2, std::move(shape));
  type.message(1, std::move(tensor));
  message.text(1, value.name);
  message.message(2, std::move(type));
  return message;
}

WireWriter graph_message(const Model& model) {
  WireWriter message;
  for (const Node& node : model.nodes) message.message(1, to_message(node));
  message.text(2, model.graph_name);
  for (const TensorData& tensor : model.initializers) message.message(5, to_message(tensor));
  for (const ValueInfo& value : model.inputs) message.message(11, to_message(value));
  for (const ValueInfo& value : model.outputs) message.message(12, to_message(value));
  return message;
}

WireWriter entry_message(const std::string& key, const std::string& value) {
  WireWriter message;
  message.text(1, key);
  message.text(2, value);
  return message;
}

}  // namespace

int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::u8:
    case ElementType::s8:
    case ElementType::boolean:
      return 1;
    case ElementType::s16:
    case ElementType::f16:
    case ElementType::bf16:
      return 2;
    case ElementType::f32:
    case ElementType::s32:
      return 4;
    case ElementType::s64:
    case ElementType::f64:
      return 8;
    default:
      return 0;
  }
}

TensorData TensorData::of(std::string name, graph::Shape shape, std::vector<float> values) {
  return own_tensor<float>(std::move(name), ElementType::f32, std::move(shape), values);
}

TensorData TensorData::of(std::string name, graph::Shape shape,
                          const std::vector<int64_t>& values) {
  return own_tensor<int64_t>(std::move(name), ElementType::s64, std::move(shape), values);
}

std::vector<int64_t> TensorData::integers() const {
  std::vector<int64_t> numbers;
  if (type == ElementType::s64) {
    copy_numbers<int64_t>(bytes, numbers);
  } else if (type == ElementType::s32) {
    copy_numbers<int32_t>(bytes, numbers);
  } else {
    fail_input("'{}' is no list of whole numbers", name);
  }
  return numbers;
}

std::vector<float> TensorData::numbers() const {
  std::vector<float> values;
  if (type == ElementType::f32) {
    copy_numbers<float>(bytes, values);
  } else if (type == ElementType::f64) {
    copy_numbers<double>(bytes, values);
  } else if (type == ElementType::f16 || type == ElementType::bf16) {
    std::vector<uint16_t> halves;
    copy_numbers<uint16_t>(bytes, halves);
    for (const uint16_t half : halves) {
      values.push_back(type == ElementType::f16 ? from_f16(half) : from_bf16(half));
    }
  } else {
    fail_input("'{}' is no list of numbers with fractions", name);
  }
  return values;
}

const NodeAttribute* Node::find(std::string_view attribute) const {
  for (const NodeAttribute& each : attributes) {
    if (each.name == attribute) return &each;
  }
  return nullptr;
}

void write_model(const Model& model, const std::filesystem::path& path) {
  WireWriter message;
  message.integer(1, model.ir_version);
  message.text(2, model.producer);
  message.message(7, graph_message(model));
  WireWriter opset;
  opset.text(1, "");
  opset.integer(2, model.opset);
  message.message(8, std::move(opset));
  for (const auto& [key, value] : model.metadata) message.message(14, entry_message(key, value));
  if (message.size() > kMostBytes) {
    fail_input("The network has {} bytes; an ONNX file can have {} at most.", message.size(),
               kMostBytes);
  }
  OutputFile file(path);
  message.write(file);
  file.commit();
}

}  // namespace millrace::models::onnx
