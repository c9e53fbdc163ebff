// Element types and shapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::graph {

enum class DataType : uint8_t { f32, f16, bf16, s32, u8 };

int64_t size_of(DataType type);
std::string_view name_of(DataType type);
// The type of that name; throws std::logic_error for any other word.
DataType data_type_of(std::string_view name);

using Shape = std::vector<int64_t>;

// The number of elements; 1 for the empty shape.
int64_t elements_of(const Shape& shape);

// "64x3x224x224".
std::string to_string(const Shape& shape);

// What a tensor is, regardless of where and how it is stored.
struct TensorType {
  Shape shape;
  DataType dtype = DataType::f32;

  int64_t elements() const { return elements_of(shape); }
  bool operator==(const TensorType&) const = default;
};

}  // namespace millrace::graph
