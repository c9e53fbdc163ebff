#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace millrace::train {
namespace {

using Kind = LearningRateSettings::Kind;

TEST(LearningRate, ConstantStaysAtTheBase) {
  const LearningRateSettings settings{.base = 0.3, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 0), 0.3);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 9), 0.3);
}

TEST(LearningRate, WarmupRisesLinearlyAndReachesTheBase) {
  const LearningRateSettings settings{.base = 0.8, .warmup_steps = 4, .total_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 1), 0.4);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 4), 0.8);
}

TEST(LearningRate, StepDropsAtEachMilestone) {
  const LearningRateSettings settings{
      .kind = Kind::step, .base = 1, .milestones = {3, 5}, .gamma = 0.1, .total_steps = 10};
  // torch.optim.lr_scheduler.MultiStepLR(milestones=[3, 5], gamma=0.1), base 1.
  const double expected[] = {1, 1, 1, 0.1, 0.1, 0.01, 0.01};
  for (int step = 0; step < 7; ++step) {
    EXPECT_NEAR(learning_rate_at(settings, step), expected[step], 1e-15) << step;
  }
}

TEST(LearningRate, CosineFollowsTheClosedForm) {
  // torch.optim.lr_scheduler.CosineAnnealingLR(T_max=8, eta_min=0.01), base 0.1.
  const LearningRateSettings settings{
      .kind = Kind::cosine, .base = 0.1, .final = 0.01, .total_steps = 8};
  const double expected[] = {0.1,         0.096574579, 0.086819805, 0.072220754, 0.055,
                             0.037779246, 0.023180195, 0.013425421, 0.01};
  for (int step = 0; step <= 8; ++step) {
    EXPECT_NEAR(learning_rate_at(settings, step), expected[step], 1e-8) << step;
  }
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 100), 0.01);
}

TEST(LearningRate, CosineStartsAfterTheWarmup) {
  const LearningRateSettings settings{
      .kind = Kind::cosine, .base = 1, .warmup_steps = 10, .total_steps = 30};
  EXPECT_DOUBLE_EQ(learning_rate_at(settings, 10), 1);
  EXPECT_NEAR(learning_rate_at(settings, 20), 0.5, 1e-15);
}

TEST(LearningRate, PolynomialFallsToTheFinalRate) {
  // torch.optim.lr_scheduler.PolynomialLR(total_iters=4, power=2), base 1.
  const LearningRateSettings settings{
      .kind = Kind::polynomial, .base = 1, .power = 2, .total_steps = 4};
  const double expected[] = {1, 0.5625, 0.25, 0.0625, 0};
  for (int step = 0; step <= 4; ++step) {
    EXPECT_DOUBLE_EQ(learning_rate_at(settings, step), expected[step]) << step;
  }
}

TEST(LearningRate, EpochsBecomeSteps) {
  const LearningRateSettings settings{.kind = Kind::step,
                                      .warmup_steps = 2,
                                      .milestones = {3, 5},
                                      .warmup_in_epochs = true,
                                      .milestones_in_epochs = true};
  const LearningRateSettings steps = in_steps(settings, 10);
  EXPECT_EQ(steps.warmup_steps, 20);
  EXPECT_EQ(steps.milestones, (std::vector<int64_t>{30, 50}));
  EXPECT_EQ(in_steps(steps, 10).warmup_steps, 20);
  EXPECT_THROW(in_steps(settings, 0), InputError);
}

TEST(LearningRate, RefusesSettingsThatMeanNothing) {
  EXPECT_THROW(check({.base = std::nan("")}), InputError);
  EXPECT_THROW(check({.base = -1}), InputError);
  EXPECT_THROW(check({.kind = Kind::step}), InputError);
  EXPECT_THROW(check({.kind = Kind::step, .milestones = {5, 3}}), InputError);
  EXPECT_NO_THROW(check({.kind = Kind::step, .milestones = {3, 5}}));
}

}  // namespace
}  // namespace millrace::train
