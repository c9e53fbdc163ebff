#include "train/evaluation.h"

#include <cmath>

#include "support.h"

namespace millrace {
namespace {

TEST(Scores, FollowTheDefinitions) {
  Scores scores;
  const std::vector<float> logits = {1, 2, 3, 0, 0, 0, 0,   // label 2: first
                                     7, 6, 5, 4, 3, 2, 1,   // label 4: fifth
                                     7, 6, 5, 4, 3, 2, 1};  // label 5: sixth
  const std::vector<int32_t> labels = {2, 4, 5};
  add_scores(scores, logits, labels, 7);
  EXPECT_EQ(scores.samples, 3);
  EXPECT_EQ(scores.top1, 1);
  EXPECT_EQ(scores.top5, 2);
  double expected = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + 4) - 3;
  double sum = 0;
  for (int i = 1; i <= 7; ++i) sum += std::exp(i);
  expected += std::log(sum) - 3 + std::log(sum) - 2;
  EXPECT_NEAR(scores.loss, expected, 1e-12);
}

TEST(Scores, DoNotOverflow) {
  Scores scores;
  add_scores(scores, std::vector<float>{1e4f, -1e4f}, std::vector<int32_t>{1}, 2);
  EXPECT_NEAR(scores.loss, 2e4, 1e-6);
}

TEST(Scores, EqualLogitsAreNotAllRight) {
  Scores scores;
  const std::vector<float> logits(10 * 10, 0.5f);
  std::vector<int32_t> labels;
  for (int i = 0; i < 10; ++i) labels.push_back(i);
  add_scores(scores, logits, labels, 10);
  EXPECT_EQ(scores.top1, 1);
  EXPECT_EQ(scores.top5, 5);
}

TEST(Scores, NotANumberIsNeverRight) {
  Scores scores;
  add_scores(scores, std::vector<float>{NAN, 1}, std::vector<int32_t>{1}, 2);
  EXPECT_EQ(scores.top1, 0);
}

TEST(Scores, PassOverRowsThatDoNotCount) {
  Scores scores;
  const std::vector<int32_t> labels = {0, kNoLabel, 1, kNoLabel};
  add_scores(scores, std::vector<float>{1, 0, 1, 0, 1, 0, 1, 0}, labels, 2);
  EXPECT_EQ(scores.samples, 2);
  EXPECT_EQ(scores.top1, 1);
}

TEST(Scores, RefuseLabelsThatAreNoClass) {
  Scores scores;
  EXPECT_THROW(add_scores(scores, std::vector<float>{1, 0}, std::vector<int32_t>{2}, 2),
               InputError);
}

}  // namespace
}  // namespace millrace
