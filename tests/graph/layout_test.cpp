#include "graph/layout.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <set>

namespace millrace::graph {
namespace {

using Index = std::array<int64_t, 4>;
using Formula = std::function<int64_t(const Index&)>;

int64_t blocks(int64_t extent, int64_t size) { return (extent + size - 1) / size; }

void expect_offsets(const std::string& tag, const Shape& shape, int64_t storage,
                    const Formula& formula) {
  const Layout layout(tag);
  ASSERT_EQ(layout.physical_elements(shape), storage) << tag;
  std::set<int64_t> seen;
  for (int64_t a = 0; a < shape[0]; ++a) {
    for (int64_t b = 0; b < shape[1]; ++b) {
      for (int64_t c = 0; c < shape[2]; ++c) {
        for (int64_t d = 0; d < shape[3]; ++d) {
          const Index index = {a, b, c, d};
          const int64_t offset = layout.offset(shape, index);
          ASSERT_EQ(offset, formula(index)) << tag << " at " << testing::PrintToString(index);
          ASSERT_LT(offset, storage);
          ASSERT_TRUE(seen.insert(offset).second);
        }
      }
    }
  }
}

TEST(Layout, PlainAndChannelsLast) {
  const Shape s = {2, 5, 3, 4};
  const auto plain = [&](const Index& i) {
    return ((i[0] * s[1] + i[1]) * s[2] + i[2]) * s[3] + i[3];
  };
  expect_offsets("", s, 120, plain);
  expect_offsets("abcd", s, 120, plain);
  expect_offsets("acdb", s, 120, [&](const Index& i) {
    return ((i[0] * s[2] + i[2]) * s[3] + i[3]) * s[1] + i[1];
  });
}

TEST(Layout, ChannelBlocks) {
  for (int64_t channels : {32, 19, 3}) {
    const Shape s = {2, channels, 3, 4};
    const int64_t outer = blocks(channels, 16);
    expect_offsets("aBcd16b", s, 2 * outer * 16 * 12, [&](const Index& i) {
      return (((i[0] * outer + i[1] / 16) * s[2] + i[2]) * s[3] + i[3]) * 16 + i[1] % 16;
    });
  }
}

TEST(Layout, WeightBlocks) {
  const Shape s = {20, 33, 3, 2};
  const int64_t in = blocks(s[1], 16);
  expect_offsets("ABcd16b16a", s, 32 * 48 * 6, [&](const Index& i) {
    return (((i[0] / 16 * in + i[1] / 16) * s[2] + i[2]) * s[3] + i[3]) * 256 + i[1] % 16 * 16 +
           i[0] % 16;
  });
  expect_offsets("Acdb16a", s, 32 * 33 * 6, [&](const Index& i) {
    return (((i[0] / 16 * s[2] + i[2]) * s[3] + i[3]) * s[1] + i[1]) * 16 + i[0] % 16;
  });
}

TEST(Layout, AxisBlockedTwice) {
  const Shape s = {17, 37, 2, 3};
  const int64_t in = blocks(s[1], 16);
  expect_offsets("ABcd8b16a2b", s, 32 * 48 * 6, [&](const Index& i) {
    return (((i[0] / 16 * in + i[1] / 16) * s[2] + i[2]) * s[3] + i[3]) * 256 + i[1] / 2 % 8 * 32 +
           i[0] % 16 * 2 + i[1] % 2;
  });
}

TEST(Layout, TagsSurviveAndCompareByMeaning) {
  for (const char* tag : {"acdb", "aBcd16b", "ABcd16b16a", "ABcd8b16a2b"}) {
    EXPECT_EQ(Layout(tag).tag(), tag);
  }
  EXPECT_EQ(Layout("abcd"), Layout());
  EXPECT_EQ(Layout("ab"), Layout("abcd"));
  EXPECT_TRUE(Layout("abcd").is_plain());
  EXPECT_NE(Layout("acdb"), Layout());
  EXPECT_NE(Layout("aBcd8b"), Layout("aBcd16b"));
  EXPECT_EQ(Layout({0, 1, 2, 3}, {{1, 16}}), Layout("aBcd16b"));
}

TEST(Layout, ChannelBlockOfEachKind) {
  EXPECT_EQ(Layout().channel_block(), 1);
  EXPECT_EQ(Layout("aBcd8b").channel_block(), 8);
  EXPECT_EQ(Layout("acdb").channel_block(), 0);
  EXPECT_EQ(Layout("Abcd16a").channel_block(), 0);
  EXPECT_EQ(Layout("ABcd16b16a").channel_block(), 0);
}

}  // namespace
}  // namespace millrace::graph
