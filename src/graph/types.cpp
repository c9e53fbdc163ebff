#include "graph/types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace millrace {

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
  switch (type) {
    case DataType::f32:
      return "f32";
    case DataType::f16:
      return "f16";
    case DataType::bf16:
      return "bf16";
    case DataType::s32:
      return "s32";
    case DataType::u8:
      return "u8";
  }
  return "unknown";
}

int64_t elements_of(const Shape& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

std::string to_string(const Shape& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

}  // namespace millrace
