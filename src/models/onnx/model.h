// What an ONNX file holds, as far as networks need it: plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "graph/types.h"

namespace millrace::models::onnx {

// Of elements, by ONNX's numbers.
enum class ElementType : int32_t {
  none = 0,
  f32 = 1,
  u8 = 2,
  s8 = 3,
  s16 = 5,
  s32 = 6,
  s64 = 7,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  bf16 = 16,
};

int64_t size_of(ElementType type);  // 0 for those that are not listed

// A constant. `bytes` are its elements in row-major order at any alignment: in the file, or in
// `own`.
struct TensorData {
  std::string name = {};
  ElementType type = ElementType::f32;
  graph::Shape shape = {};
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const std::vector<std::byte>> own = {};

  static TensorData of(std::string name, graph::Shape shape, std::vector<float> values);
  static TensorData of(std::string name, graph::Shape shape, const std::vector<int64_t>& values);
  // Whole numbers; throws InputError, naming it, if it holds others.
  std::vector<int64_t> integers() const;
  // Likewise numbers with fractions.
  std::vector<float> numbers() const;
};

struct NodeAttribute {
  enum class Kind : uint8_t { other, number, integer, text, tensor, numbers, integers };
  std::string name;
  Kind kind = Kind::other;
  double number = 0;
  int64_t integer = 0;
  std::string text = {};
  TensorData tensor = {};
  std::vector<float> numbers = {};
  std::vector<int64_t> integers = {};
};

struct Node {
  std::string type;
  std::string name;
  std::vector<std::string> inputs;  // "" for one that is left out
  std::vector<std::string> outputs;
  std::vector<NodeAttribute> attributes = {};
  std::string domain = {};

  const NodeAttribute* find(std::string_view attribute) const;
};

// An extent is a number, or a name for one that is open.
struct Extent {
  int64_t number = 0;
  std::string symbol = {};
};

struct ValueInfo {
  std::string name;
  ElementType type = ElementType::f32;
  std::vector<Extent> shape = {};
};

struct Model {
  int64_t ir_version = 8;
  int64_t opset = 17;
  std::string producer = {};
  std::string graph_name = {};
  std::vector<Node> nodes = {};
  std::vector<TensorData> initializers = {};
  std::vector<ValueInfo> inputs = {};
  std::vector<ValueInfo> outputs = {};
  std::map<std::string, std::string> metadata = {};
};

// Whether bytes begin as ONNX files do.
bool is_onnx(std::span<const std::byte> bytes);

// Where the file that a tensor's data lies in is found, by its name beside the model.
using ExternalFiles = std::function<std::span<const std::byte>(const std::string& location)>;

// Checks all that it keeps: sizes, types, the names of constants. Takes any bytes; throws
// InputError naming `file`. Tensors point into the bytes.
Model parse_model(std::span<const std::byte> bytes, std::string_view file,
                  const ExternalFiles& external);

// A mapped file with those of its external data. Movable; reading is thread-safe.
class ModelFile {
 public:
  explicit ModelFile(const std::filesystem::path& path);
  const Model& model() const { return model_; }

 private:
  std::map<std::string, MappedFile> files_;
  Model model_;
};

// Whole or not at all. Throws InputError for a model beyond protobuf's 2 GiB.
void write_model(const Model& model, const std::filesystem::path& path);

}  // namespace millrace::models::onnx
