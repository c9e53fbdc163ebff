// One tensor of a weights file, whatever the file's format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::data {

// How an element is stored; `other` cannot be read as a number.
enum class WeightType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  s64,
  s32,
  s16,
  s8,
  u8,
  boolean,
  other,
};

// As safetensors calls it ("BF16"), "other" for what has no name here.
std::string_view name_of(WeightType type);
WeightType weight_type_named(std::string_view name);
int64_t size_of(WeightType type);  // 0 for other
bool is_float(WeightType type);

// A view of elements in a file's bytes, which must outlive it. Element (i, j, …) lies at
// i × strides[0] + j × strides[1] + … elements behind the first byte of `data`, at any alignment.
struct WeightTensor {
  std::string name;
  WeightType type = WeightType::f32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};
  std::span<const std::byte> data = {};

  int64_t elements() const;
  // Whether the elements lie in plain row-major order.
  bool contiguous() const;
};

// The strides of elements in plain row-major order.
std::vector<int64_t> plain_strides(const std::vector<int64_t>& shape);

// Whether the shape is one of at most 2^62 elements, and every element lies in `data`.
bool lies_inside(const WeightTensor& tensor);

// Rows from `first` on, along the first axis, as floats in plain row-major order; a tensor without
// axes has one row. Numbers that float32 lacks are rounded to the nearest.
void read_rows(const WeightTensor& tensor, int64_t first, int64_t count, std::span<float> values);
void read_values(const WeightTensor& tensor, std::span<float> values);

}  // namespace millrace::data
