#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "models/onnx/model.h"
#include "models/onnx/wire.h"

namespace millrace::models::onnx {
namespace {

// The fields that are used; onnx.proto has the others.
namespace field {
enum Model : uint64_t { kIr = 1, kProducer = 2, kGraph = 7, kOpset = 8, kMetadata = 14 };
enum Graph : uint64_t { kNode = 1, kGraphName = 2, kInitializer = 5, kInput = 11, kOutput = 12 };
enum Node : uint64_t { kFrom = 1, kTo = 2, kNodeName = 3, kType = 4, kAttribute = 5, kDomain = 7 };
enum Attribute : uint64_t { kName = 1, kF = 2, kI = 3, kS = 4, kT = 5, kFloats = 7, kInts = 8 };
enum Tensor : uint64_t {
  kDims = 1,
  kDataType = 2,
  kFloatData = 4,
  kInt32Data = 5,
  kInt64Data = 7,
  kTensorName = 8,
  kRaw = 9,
  kDoubleData = 10,
  kExternal = 13,
  kLocation = 14,
};
}  // namespace field

constexpr int64_t kMostElements = int64_t{1} << 40;

template <typename Number>
void append(std::vector<std::byte>& bytes, Number number) {
  const auto* first = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), first, first + sizeof(number));
}

// A list of numbers is one field of all of them, or a field for each.
template <typename Each>
void each_varint(const WireField& field, Each&& each) {
  if (field.type != WireType::delimited) return each(field.value);
  WireReader packed(field.bytes);
  while (!packed.empty()) each(packed.varint());
}

template <typename Each>
void each_fixed(const WireField& field, size_t size, Each&& each) {
  if (field.type != WireType::delimited) return each(field.value);
  WireReader packed(field.bytes);
  while (!packed.empty()) each(packed.fixed(size));
}

// Numbers in an int32_data list stand for elements of any type of at most 32 bits.
void append_small(std::vector<std::byte>& bytes, ElementType type, uint64_t value) {
  switch (size_of(type)) {
    case 1:
      return append(bytes, static_cast<uint8_t>(value));
    case 2:
      return append(bytes, static_cast<uint16_t>(value));
    default:
      return append(bytes, static_cast<uint32_t>(value));
  }
}

std::pair<std::string, std::string> parse_entry(std::span<const std::byte> bytes) {
  std::pair<std::string, std::string> entry;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    if (each.number == 1) entry.first = each.text();
    if (each.number == 2) entry.second = each.text();
  }
  return entry;
}

uint64_t parse_number(const std::string& text, const std::string& tensor) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_input("tensor '{}' has external data at '{}', which is no number", tensor, text);
  }
  return number;
}

// Where a tensor's elements are when they are not in the model.
class ExternalPlace {
 public:
  void add(std::pair<std::string, std::string> entry) { entries_.insert(std::move(entry)); }

  std::span<const std::byte> find(const TensorData& tensor, uint64_t size,
                                  const ExternalFiles& files) const {
    const auto text = [&](const char* key) {
      const auto found = entries_.find(key);
      return found == entries_.end() ? std::string() : found->second;
    };
    const std::string location = text("location");
    const std::filesystem::path path = location;
    if (location.empty() || path.is_absolute() || location.find("..") != std::string::npos) {
      fail_input("tensor '{}' has its data in '{}', which is no file beside the model", tensor.name,
                 location);
    }
    const std::string at = text("offset"), length = text("length");
    const uint64_t offset = at.empty() ? 0 : parse_number(at, tensor.name);
    if (!length.empty() && parse_number(length, tensor.name) != size) {
      fail_input("tensor '{}' needs {} bytes but has {} in '{}'", tensor.name, size, length,
                 location);
    }
    const std::span<const std::byte> file = files(location);
    if (offset > file.size() || size > file.size() - offset) {
      fail_input("tensor '{}' lies behind the end of '{}'", tensor.name, location);
    }
    return file.subspan(offset, size);
  }

 private:
  std::map<std::string, std::string> entries_;
};

uint64_t bytes_of(const TensorData& tensor) {
  int64_t room = kMostElements;
  int64_t elements = 1;
  for (const int64_t extent : tensor.shape) {
    if (extent < 0 || extent > room) {
      fail_input("tensor '{}' cannot have the shape {}", tensor.name,
                 graph::to_string(tensor.shape));
    }
    elements *= extent;
    room /= std::max<int64_t>(extent, 1);
  }
  return static_cast<uint64_t>(elements) * static_cast<uint64_t>(size_of(tensor.type));
}

TensorData parse_tensor(std::span<const std::byte> bytes, const ExternalFiles& files) {
  TensorData tensor;
  tensor.type = ElementType::none;
  std::vector<WireField> lists;
  std::optional<std::span<const std::byte>> raw;
  ExternalPlace place;
  bool is_external = false;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    switch (each.number) {
      case field::kDims:
        each_varint(each, [&](uint64_t value) { tensor.shape.push_back(int64_t(value)); });
        break;
      case field::kDataType:
        tensor.type = static_cast<ElementType>(each.value & 0xFF);
        break;
      case field::kTensorName:
        tensor.name = each.text();
        break;
      case field::kRaw:
        raw = each.bytes;
        break;
      case field::kExternal:
        place.add(parse_entry(each.bytes));
        break;
      case field::kLocation:
        is_external = each.value == 1;
        break;
      default:
        lists.push_back(each);
    }
  }
  const uint64_t size = bytes_of(tensor);
  if (size_of(tensor.type) == 0) return tensor;  // named where it is used
  if (is_external) {
    tensor.bytes = place.find(tensor, size, files);
    return tensor;
  }
  if (!raw) {
    auto own = std::make_shared<std::vector<std::byte>>();
    for (const WireField& list : lists) {
      if (list.number == field::kFloatData) {
        each_fixed(list, 4, [&](uint64_t bits) { append(*own, static_cast<uint32_t>(bits)); });
      } else if (list.number == field::kDoubleData) {
        each_fixed(list, 8, [&](uint64_t bits) { append(*own, bits); });
      } else if (list.number == field::kInt64Data) {
        each_varint(list, [&](uint64_t value) { append(*own, value); });
      } else if (list.number == field::kInt32Data) {
        each_varint(list, [&](uint64_t value) { append_small(*own, tensor.type, value); });
      }
    }
    tensor.bytes = *own;
    tensor.own = std::move(own);
  } else {
    tensor.bytes = *raw;
  }
  if (tensor.bytes.size() != size) {
    fail_input("tensor '{}' of shape {} needs {} bytes but has {}", tensor.name,
               graph::to_string(tensor.shape), size, tensor.bytes.size());
  }
  return tensor;
}

NodeAttribute parse_attribute(std::span<const std::byte> bytes, const ExternalFiles& files) {
  NodeAttribute attribute;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    switch (each.number) {
      case field::kName:
        attribute.name = each.text();
        break;
      case field::kF:
        attribute.kind = NodeAttribute::Kind::number;
        attribute.number = static_cast<double>(each.single());
        break;
      case field::kI:
        attribute.kind = NodeAttribute::Kind::integer;
        attribute.integer = each.integer();
        break;
      case field::kS:
        attribute.kind = NodeAttribute::Kind::text;
        attribute.text = each.text();
        break;
      case field::kT:
        attribute.kind = NodeAttribute::Kind::tensor;
        attribute.tensor = parse_tensor(each.bytes, files);
        break;
      case field::kFloats:
        attribute.kind = NodeAttribute::Kind::numbers;
        each_fixed(each, 4, [&](uint64_t bits) {
          attribute.numbers.push_back(WireField{.value = bits}.single());
        });
        break;
      case field::kInts:
        attribute.kind = NodeAttribute::Kind::integers;
        each_varint(each, [&](uint64_t value) { attribute.integers.push_back(int64_t(value)); });
        break;
      default:
        break;
    }
  }
  return attribute;
}

Node parse_node(std::span<const std::byte> bytes, const ExternalFiles& files) {
  Node node;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    if (each.number == field::kFrom) node.inputs.push_back(each.text());
    if (each.number == field::kTo) node.outputs.push_back(each.text());
    if (each.number == field::kNodeName) node.name = each.text();
    if (each.number == field::kType) node.type = each.text();
    if (each.number == field::kDomain) node.domain = each.text();
    if (each.number == field::kAttribute) {
      node.attributes.push_back(parse_attribute(each.bytes, files));
    }
  }
  return node;
}

// type.tensor_type.shape.dim
ValueInfo parse_value(std::span<const std::byte> bytes) {
  ValueInfo value;
  value.type = ElementType::none;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    if (each.number == 1) value.name = each.text();
    if (each.number != 2) continue;
    WireReader type(each.bytes);
    for (WireField tensor; type.next(tensor);) {
      if (tensor.number != 1) continue;
      WireReader parts(tensor.bytes);
      for (WireField part; parts.next(part);) {
        if (part.number == 1) value.type = static_cast<ElementType>(part.value & 0xFF);
        if (part.number != 2) continue;
        WireReader shape(part.bytes);
        for (WireField dim; shape.next(dim);) {
          if (dim.number != 1) continue;
          Extent& extent = value.shape.emplace_back();
          WireReader extents(dim.bytes);
          for (WireField one; extents.next(one);) {
            if (one.number == 1) extent.number = one.integer();
            if (one.number == 2) extent.symbol = one.text();
          }
        }
      }
    }
  }
  return value;
}

void parse_graph(std::span<const std::byte> bytes, Model& model, const ExternalFiles& files) {
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    switch (each.number) {
      case field::kNode:
        model.nodes.push_back(parse_node(each.bytes, files));
        break;
      case field::kGraphName:
        model.graph_name = each.text();
        break;
      case field::kInitializer:
        model.initializers.push_back(parse_tensor(each.bytes, files));
        break;
      case field::kInput:
        model.inputs.push_back(parse_value(each.bytes));
        break;
      case field::kOutput:
        model.outputs.push_back(parse_value(each.bytes));
        break;
      default:
        break;
    }
  }
}

void parse_opset(std::span<const std::byte> bytes, Model& model) {
  std::string domain;
  int64_t version = 0;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    if (each.number == 1) domain = each.text();
    if (each.number == 2) version = each.integer();
  }
  if (domain.empty() || domain == "ai.onnx") model.opset = version;
}

Model parse_fields(std::span<const std::byte> bytes, const ExternalFiles& files) {
  Model model;
  model.opset = 0;
  WireReader reader(bytes);
  for (WireField each; reader.next(each);) {
    if (each.number == field::kIr) model.ir_version = each.integer();
    if (each.number == field::kProducer) model.producer = each.text();
    if (each.number == field::kGraph) parse_graph(each.bytes, model, files);
    if (each.number == field::kOpset) parse_opset(each.bytes, model);
    if (each.number == field::kMetadata) model.metadata.insert(parse_entry(each.bytes));
  }
  if (model.nodes.empty()) fail_input("it has no nodes");
  return model;
}

}  // namespace

bool is_onnx(std::span<const std::byte> bytes) {
  constexpr size_t kHeader = 8;  // of safetensors, with JSON behind it
  const bool is_safetensors = bytes.size() > kHeader && bytes[kHeader] == std::byte{'{'};
  return !is_safetensors && !bytes.empty() && bytes[0] == std::byte{0x08};
}

Model parse_model(std::span<const std::byte> bytes, std::string_view file,
                  const ExternalFiles& external) {
  try {
    return parse_fields(bytes, external);
  } catch (const InputError& error) {
    std::string_view clause = error.marked();
    if (clause.ends_with('.')) clause.remove_suffix(1);
    fail_input("'{}' cannot be read as ONNX: {}.", file, printable(clause));
  }
}

ModelFile::ModelFile(const std::filesystem::path& path) {
  const auto open = [&](const std::string& name, const std::filesystem::path& place) {
    const auto found = files_.find(name);
    if (found != files_.end()) return found->second.bytes();
    return files_.emplace(name, MappedFile(place)).first->second.bytes();
  };
  model_ = parse_model(open("", path), path.string(), [&](const std::string& location) {
    return open(location, path.parent_path() / location);
  });
}

}  // namespace millrace::models::onnx
