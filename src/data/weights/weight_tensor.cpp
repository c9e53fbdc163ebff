#include "data/weights/weight_tensor.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "base/half.h"

namespace millrace::data {
namespace {

struct WeightTypeFacts {
  WeightType type;
  std::string_view name;
  int64_t size;
  bool is_float;
};

constexpr std::array<WeightTypeFacts, 12> kWeightTypes = {{
    {WeightType::f64, "F64", 8, true},
    {WeightType::f32, "F32", 4, true},
    {WeightType::f16, "F16", 2, true},
    {WeightType::bf16, "BF16", 2, true},
    {WeightType::f8_e4m3, "F8_E4M3", 1, true},
    {WeightType::f8_e5m2, "F8_E5M2", 1, true},
    {WeightType::s64, "I64", 8, false},
    {WeightType::s32, "I32", 4, false},
    {WeightType::s16, "I16", 2, false},
    {WeightType::s8, "I8", 1, false},
    {WeightType::u8, "U8", 1, false},
    {WeightType::boolean, "BOOL", 1, false},
}};

const WeightTypeFacts* facts_of(WeightType type) {
  for (const WeightTypeFacts& facts : kWeightTypes) {
    if (facts.type == type) return &facts;
  }
  return nullptr;
}

// Four bits of exponent with bias 7, no infinities, one NaN of each sign.
float from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const int fraction = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                  : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if ((bits & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

template <typename Stored>
Stored stored_at(const std::byte* place) {
  Stored value;
  std::memcpy(&value, place, sizeof(value));
  return value;
}

float element_at(WeightType type, const std::byte* place) {
  switch (type) {
    case WeightType::f64:
      return static_cast<float>(stored_at<double>(place));
    case WeightType::f32:
      return stored_at<float>(place);
    case WeightType::f16:
      return from_f16(stored_at<uint16_t>(place));
    case WeightType::bf16:
      return from_bf16(stored_at<uint16_t>(place));
    case WeightType::f8_e4m3:
      return from_e4m3(stored_at<uint8_t>(place));
    case WeightType::f8_e5m2:  // the upper half of an f16
      return from_f16(static_cast<uint16_t>(stored_at<uint8_t>(place) << 8));
    case WeightType::s64:
      return static_cast<float>(stored_at<int64_t>(place));
    case WeightType::s32:
      return static_cast<float>(stored_at<int32_t>(place));
    case WeightType::s16:
      return static_cast<float>(stored_at<int16_t>(place));
    case WeightType::s8:
      return static_cast<float>(stored_at<int8_t>(place));
    case WeightType::u8:
    case WeightType::boolean:
      return static_cast<float>(stored_at<uint8_t>(place));
    case WeightType::other:
      break;
  }
  throw std::logic_error("the elements are no numbers");
}

void read_line(WeightType type, const std::byte* from, int64_t count, int64_t stride, float* to) {
  if (type == WeightType::f32 && stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const int64_t step = stride * size_of(type);
  for (int64_t i = 0; i < count; ++i) to[i] = element_at(type, from + i * step);
}

}  // namespace

std::string_view name_of(WeightType type) {
  const WeightTypeFacts* facts = facts_of(type);
  return facts == nullptr ? "other" : facts->name;
}

WeightType weight_type_named(std::string_view name) {
  for (const WeightTypeFacts& facts : kWeightTypes) {
    if (facts.name == name) return facts.type;
  }
  return WeightType::other;
}

int64_t size_of(WeightType type) {
  const WeightTypeFacts* facts = facts_of(type);
  return facts == nullptr ? 0 : facts->size;
}

bool is_float(WeightType type) {
  const WeightTypeFacts* facts = facts_of(type);
  return facts != nullptr && facts->is_float;
}

int64_t WeightTensor::elements() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

bool WeightTensor::contiguous() const {
  const std::vector<int64_t> plain = plain_strides(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1 && strides[i] != plain[i]) return false;
  }
  return true;
}

std::vector<int64_t> plain_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

bool lies_inside(const WeightTensor& tensor) {
  constexpr int64_t kMost = int64_t{1} << 62;
  if (tensor.strides.size() != tensor.shape.size()) return false;
  int64_t count = 1;
  int64_t last = 0;  // place of the last element
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const int64_t extent = tensor.shape[i];
    if (extent < 0 || tensor.strides[i] < 0) return false;
    int64_t reach = 0;
    if (__builtin_mul_overflow(count, std::max<int64_t>(extent, 1), &count) || count > kMost ||
        __builtin_mul_overflow(std::max<int64_t>(extent - 1, 0), tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  if (tensor.elements() == 0) return true;
  const int64_t size = std::max<int64_t>(size_of(tensor.type), 1);
  return last < static_cast<int64_t>(tensor.data.size()) / size;
}

void read_rows(const WeightTensor& tensor, int64_t first, int64_t count, std::span<float> values) {
  const size_t axes = tensor.shape.size();
  if (values.empty()) return;
  if (axes == 0) {
    values[0] = element_at(tensor.type, tensor.data.data());
    return;
  }
  // An index over all axes but the last, which is one line.
  std::vector<int64_t> shape = tensor.shape;
  shape[0] = count;
  const int64_t line = shape.back();
  const std::byte* start = tensor.data.data() + first * tensor.strides[0] * size_of(tensor.type);
  std::vector<int64_t> index(axes, 0);
  for (size_t done = 0; done < values.size(); done += static_cast<size_t>(line)) {
    int64_t place = 0;
    for (size_t i = 0; i + 1 < axes; ++i) place += index[i] * tensor.strides[i];
    read_line(tensor.type, start + place * size_of(tensor.type), line, tensor.strides.back(),
              values.data() + done);
    for (size_t i = axes - 1; i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
}

void read_values(const WeightTensor& tensor, std::span<float> values) {
  if (tensor.contiguous()) {
    read_line(tensor.type, tensor.data.data(), static_cast<int64_t>(values.size()), 1,
              values.data());
    return;
  }
  read_rows(tensor, 0, tensor.shape[0], values);
}

}  // namespace millrace::data
