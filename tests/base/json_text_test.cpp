#include "base/json_text.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonText, DeepNestingIsNoJson) {
  EXPECT_TRUE(parse_json(nested(kDeepestJson)).is_array());
  EXPECT_TRUE(parse_json(nested(kDeepestJson + 1)).is_discarded());
  EXPECT_TRUE(parse_json(nested(2'000'000)).is_discarded());
  EXPECT_TRUE(parse_json("{\"a\":").is_discarded());
  EXPECT_TRUE(is_nested_too_deep(std::string(1000, '{')));
}

TEST(JsonText, BracketsInTextsAreText) {
  const std::string brackets =
      "\"" + std::string(1000, '[') + "\\\"" + std::string(1000, '{') + "\"";
  EXPECT_FALSE(is_nested_too_deep(brackets));
  EXPECT_TRUE(parse_json(brackets).is_string());
  EXPECT_FALSE(is_nested_too_deep("[\"\\\\\"," + nested(10) + "]"));
}

TEST(JsonText, RowsOfBracketsAreNotDeep) {
  std::string rows = "[";
  for (int i = 0; i < 500; ++i) rows += "[1],";
  EXPECT_TRUE(parse_json(rows + "[2]]").is_array());
}

}  // namespace
}  // namespace millrace
