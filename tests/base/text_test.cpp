#include "base/text.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace {
namespace {

TEST(Text, ParsesSizes) {
  EXPECT_EQ(parse_bytes("4096", "x"), 4096u);
  EXPECT_EQ(parse_bytes("12066MiB", "x"), 12066ull << 20);
  EXPECT_EQ(parse_bytes("1.5GB", "x"), 1500000000u);
  for (const char* bad : {"", "MiB", "-1", "12XiB", "1e300GiB", "nan"}) {
    EXPECT_THROW(parse_bytes(bad, "--device-memory"), InputError) << bad;
  }
}

TEST(Text, FormatsForPeople) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(12066ull << 20), "11.78 GiB");
  EXPECT_EQ(format_duration(95), "1:35");
  EXPECT_EQ(format_duration(3723.4), "1:02:03");
}

TEST(Text, WhatCannotBePrintedIsWrittenByItsNumber) {
  EXPECT_EQ(printable("a b\u00e9"), "a b\u00e9");
  EXPECT_EQ(printable("a\xFF\xC3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("one\ntwo\x1B[2J\x7F"), "one\\x0atwo\\x1b[2J\\x7f");
}

TEST(Text, SplitsAndSuggests) {
  EXPECT_EQ(split("a,b,,c", ','), (std::vector<std::string>{"a", "b", "", "c"}));
  EXPECT_EQ(nearest("resnet5O", {"vgg16", "resnet50", "alexnet"}), "resnet50");
  EXPECT_EQ(nearest("transformer", {"vgg16", "resnet50"}), "");
}

}  // namespace
}  // namespace millrace
