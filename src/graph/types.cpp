#include "graph/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

namespace millrace::graph {

int64_t size_of(DataType type) {
  switch (type) {
    case DataType::f32:
    case DataType::s32:
      return 4;
    case DataType::f16:
    case DataType::bf16:
      return 2;
    case DataType::u8:
      return 1;
  }
  return 0;
}

std::string_view name_of(DataType type) {
  constexpr std::string_view kNames[] = {"f32", "f16", "bf16", "s32", "u8"};
  return kNames[static_cast<size_t>(type)];
}

DataType data_type_of(std::string_view name) {
  for (const DataType type :
       {DataType::f32, DataType::f16, DataType::bf16, DataType::s32, DataType::u8}) {
    if (name_of(type) == name) return type;
  }
  throw std::logic_error(fmt::format("there is no data type '{}'", name));
}

int64_t elements_of(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

}  // namespace millrace::graph
