#include "graph/types.h"

#include <gtest/gtest.h>

#include "graph/attributes.h"

namespace millrace::graph {
namespace {

TEST(Types, SizesAndNames) {
  EXPECT_EQ(size_of(DataType::f32), 4);
  EXPECT_EQ(size_of(DataType::s32), 4);
  EXPECT_EQ(size_of(DataType::f16), 2);
  EXPECT_EQ(size_of(DataType::bf16), 2);
  EXPECT_EQ(size_of(DataType::u8), 1);
  EXPECT_EQ(name_of(DataType::bf16), "bf16");
  EXPECT_EQ(data_type_of("f16"), DataType::f16);
  EXPECT_THROW(data_type_of("fp16"), std::logic_error);
}

TEST(Types, Shapes) {
  EXPECT_EQ(elements_of({}), 1);
  EXPECT_EQ(elements_of({64, 3, 224, 224}), 64 * 3 * 224 * 224);
  EXPECT_EQ(elements_of({100000, 100000}), 10000000000);
  EXPECT_EQ(to_string(Shape{64, 3, 224, 224}), "64x3x224x224");
}

TEST(Attributes, KeepTheirTypes) {
  const Attributes attributes = {{"relu", true},
                                 {"groups", int64_t{2}},
                                 {"rate", 0.5},
                                 {"stride", Attributes::Integers{2, 3}}};
  EXPECT_TRUE(attributes.flag("relu"));
  EXPECT_FALSE(attributes.flag("residual"));
  EXPECT_EQ(attributes.integer("groups"), 2);
  EXPECT_EQ(attributes.number("rate"), 0.5);
  EXPECT_EQ(attributes.integers("stride"), (Attributes::Integers{2, 3}));
  EXPECT_EQ(attributes.to_string(), "groups=2 rate=0.5 relu=true stride=[2,3]");
  EXPECT_THROW(attributes.integer("missing"), std::logic_error);
  EXPECT_THROW(attributes.integer("rate"), std::logic_error);
}

}  // namespace
}  // namespace millrace::graph
