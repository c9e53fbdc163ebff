#include "base/base64.h"

#include <gtest/gtest.h>

#include <string_view>

namespace millrace {
namespace {

// Of RFC 4648, section 10.
TEST(Base64, IsThatOfTheStandard) {
  const std::string_view all = "foobar";
  const char* letters[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  for (size_t i = 0; i <= all.size(); ++i) {
    EXPECT_EQ(base64(std::as_bytes(std::span(all.substr(0, i)))), letters[i]);
  }
  EXPECT_EQ(base64(std::as_bytes(std::span("\xFB\xFF\xFE", 3))), "+//+");
}

}  // namespace
}  // namespace millrace
