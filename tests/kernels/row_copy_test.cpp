#include "kernels/row_copy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/half.h"
#include "base/random.h"

namespace millrace::kernels {
namespace {

float rounded(float value, graph::DataType wire) {
  if (wire == graph::DataType::f32) return value;
  return wire == graph::DataType::f16 ? from_f16(to_f16(value)) : from_bf16(to_bf16(value));
}

// A tensor in a layout, and the place of each of its values.
struct Sample {
  TensorSpec spec;
  std::vector<float> memory;

  Sample(const std::string& layout, const graph::Shape& shape) {
    spec.type = {shape, graph::DataType::f32};
    spec.layout = layout.empty() ? graph::Layout() : graph::Layout(layout);
    memory.resize(static_cast<size_t>(spec.physical_elements()), 0.0f);
  }

  float& at(int64_t row, int64_t place) {
    const graph::Shape& shape = spec.type.shape;
    std::vector<int64_t> index = {row};
    for (size_t axis = 1; axis < shape.size(); ++axis) {
      int64_t behind = 1;
      for (size_t later = axis + 1; later < shape.size(); ++later) behind *= shape[later];
      index.push_back(place / behind % shape[axis]);
    }
    return memory[static_cast<size_t>(spec.layout.offset(shape, index))];
  }

  std::byte* address() { return reinterpret_cast<std::byte*>(memory.data()); }
};

// Out of a slot in one layout, over a plain buffer, into a slot in another.
void expect_rounded_rows(const std::string& from, const std::string& to, graph::DataType wire) {
  SCOPED_TRACE(fmt::format("{} to {} as {}", from, to, graph::name_of(wire)));
  const graph::Shape shape = {5, 20, 3, 7};
  const int64_t row_elements = 20 * 3 * 7;
  const RowRange rows = {1, 4};
  Sample source(from, shape);
  Sample target(to, shape);
  const Random random(3, 4);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t i = 0; i < row_elements; ++i) {
      source.at(row, i) = random.normal(static_cast<uint64_t>(row * row_elements + i));
    }
  }
  std::vector<std::byte> message(static_cast<size_t>(3 * row_elements * graph::size_of(wire)) + 64,
                                 std::byte{0x5a});
  std::vector<float> scratch(static_cast<size_t>(row_elements));
  auto* room = reinterpret_cast<std::byte*>(scratch.data());
  std::byte* source_address = source.address();
  std::byte* middle = message.data();
  std::byte* target_address = target.address();
  make_row_copy({"x", source.spec, rows, true, wire})
      ->run({{&source_address, 1}, {&middle, 1}, room});
  EXPECT_EQ(message[message.size() - 64], std::byte{0x5a}) << "beyond the end of the message";
  make_row_copy({"x", target.spec, rows, false, wire})
      ->run({{&middle, 1}, {&target_address, 1}, room});
  int64_t wrong = 0;
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t i = 0; i < row_elements; ++i) {
      const float expected = row >= 1 && row < 4 ? rounded(source.at(row, i), wire) : 0.0f;
      wrong += target.at(row, i) == expected ? 0 : 1;
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(RowCopy, RoundsOnceOnTheWay) {
  for (const graph::DataType wire :
       {graph::DataType::f32, graph::DataType::f16, graph::DataType::bf16}) {
    for (const char* from : {"", "aBcd16b", "acdb"}) {
      for (const char* to : {"", "aBcd16b", "acdb"}) expect_rounded_rows(from, to, wire);
    }
  }
}

TEST(RowCopy, RefusesWhatCannotTravelSo) {
  Sample sample("", {4, 3});
  sample.spec.type.dtype = graph::DataType::s32;
  EXPECT_THROW(make_row_copy({"x", sample.spec, {0, 4}, true, graph::DataType::f16}),
               std::logic_error);
}

}  // namespace
}  // namespace millrace::kernels
