#include "train/confusion.h"

#include <gmock/gmock.h>

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

// Class 0: two right; class 1: one right, one taken for 2; class 2: one taken for 1. Class 3: none.
Confusion example() {
  return Confusion({.logits = {9, 1, 1, 0,  //
                               5, 5, 1, 0,  // of equal ones the first
                               0, 3, 2, 0,  //
                               0, 1, 2, 0,  //
                               0, 4, 2, 0},
                    .labels = {0, 0, 1, 1, 2}},
                   4);
}

TEST(ConfusionTest, CountsWhatWasTakenForWhat) {
  const Confusion confusion = example();
  EXPECT_EQ(confusion.count(0, 0), 2);
  EXPECT_EQ(confusion.count(1, 2), 1);
  EXPECT_EQ(confusion.count(2, 1), 1);
  EXPECT_EQ(confusion.score(1).precision(), 0.5);
  EXPECT_EQ(confusion.score(1).recall(), 0.5);
  EXPECT_EQ(confusion.score(2).recall(), 0);
  EXPECT_EQ(confusion.score(3).precision(), 0);
}

TEST(ConfusionTest, IsToldWithNames) {
  const Json json = example().to_json({"ant", "bee", "cat"});
  EXPECT_EQ(json["classes"][1]["name"], "bee");
  EXPECT_EQ(json["classes"][3]["name"], "3");
  EXPECT_EQ(json["classes"][0]["recall"], 1);
  EXPECT_EQ(json["matrix"], Json({{2, 0, 0, 0}, {0, 1, 1, 0}, {0, 1, 0, 0}, {0, 0, 0, 0}}));
  const std::string text = example().to_text({"ant", "bee", "cat"});
  EXPECT_THAT(text, HasSubstr("ant          2   100.00 %  100.00 %"));
  EXPECT_THAT(text, HasSubstr("1 of bee taken for cat\n"));
}

}  // namespace
}  // namespace millrace::train
