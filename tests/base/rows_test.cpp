#include "base/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Rows, AreThoseOfTheRangesInTheirOrder) {
  EXPECT_THAT(rows_of({{4, 6}, {0, 1}, {2, 2}}, 6), ElementsAre(4, 5, 0));
  EXPECT_THAT(rows_of({}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(rows_of({{1, 1}}, 3), IsEmpty());
}

TEST(Rows, OutsideTheBatchAreRefused) {
  for (const RowRange& range : {RowRange{-1, 2}, RowRange{2, 1}, RowRange{0, 7}}) {
    EXPECT_THROW(rows_of({range}, 6), InputError);
  }
}

}  // namespace
}  // namespace millrace
