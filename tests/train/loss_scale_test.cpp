#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "support.h"

namespace millrace::train {
namespace {

LossScaleSettings dynamic(int64_t window, double least, double most) {
  LossScaleSettings settings;
  settings.dynamic = true;
  settings.scale = kFirstLossScale;
  settings.window = window;
  settings.least = least;
  settings.most = most;
  return settings;
}

// The rule said otherwise: runs of good steps double the scale once for each whole window in them,
// each overflow halves it, in powers of two.
std::vector<double> by_runs(const std::vector<bool>& overflows, int64_t window, int least,
                            int most) {
  std::vector<double> scales;
  int exponent = 16;
  int64_t run = 0;
  for (const bool overflow : overflows) {
    if (overflow) {
      run = 0;
      if (exponent > least) --exponent;
    } else {
      ++run;
      if (run % window == 0 && exponent < most) ++exponent;
    }
    scales.push_back(std::ldexp(1.0, exponent));
  }
  return scales;
}

TEST(LossScale, FollowsTheRuleForAnySequenceOfOverflows) {
  for (const int64_t window : {1, 2, 3, 7, 50}) {
    for (const double rate : {0.0, 0.02, 0.3, 0.7, 1.0}) {
      const LossScaleSettings settings = dynamic(window, 4, 524288);
      const Random random(static_cast<uint64_t>(window), 9);
      std::vector<bool> overflows;
      std::vector<double> scales;
      LossScaleState state = first_state(settings);
      int64_t skipped = 0;
      for (uint64_t i = 0; i < 400; ++i) {
        overflows.push_back(random.uniform(i) < rate);
        skipped += overflows.back() ? 1 : 0;
        state = after_step(settings, state, state.scale, overflows.back());
        scales.push_back(state.scale);
      }
      EXPECT_EQ(scales, by_runs(overflows, window, 2, 19)) << window << " " << rate;
      EXPECT_EQ(state.skipped, skipped);
    }
  }
}

TEST(LossScale, StartsAtTwoToTheSixteenAndDoublesAfterTwoThousandSteps) {
  const LossScaleSettings settings = dynamic(2000, 1, 16777216);
  LossScaleState state = first_state(settings);
  EXPECT_EQ(state.scale, 65536);
  for (int i = 0; i < 1999; ++i) state = after_step(settings, state, state.scale, false);
  EXPECT_EQ(state.scale, 65536);
  state = after_step(settings, state, state.scale, false);
  EXPECT_EQ(state.scale, 131072);
}

TEST(LossScale, IsHalvedOnceByStepsThatWereUnderWayTogether) {
  const LossScaleSettings settings = dynamic(10, 1, 16777216);
  LossScaleState state = first_state(settings);
  for (int i = 0; i < 5; ++i) state = after_step(settings, state, 65536, true);
  EXPECT_EQ(state.scale, 32768);
  EXPECT_EQ(state.skipped, 5);
}

TEST(LossScale, IsStuckAfterTwentySkipsInARowAtTheFloorAndNotBefore) {
  const LossScaleSettings settings = dynamic(10, 32768, 65536);
  LossScaleState state = first_state(settings);
  state = after_step(settings, state, state.scale, true);  // down to the floor
  for (int i = 0; i < 19; ++i) state = after_step(settings, state, state.scale, true);
  EXPECT_FALSE(is_stuck(settings, state));
  LossScaleState saved = after_step(settings, state, state.scale, false);
  EXPECT_FALSE(is_stuck(settings, after_step(settings, saved, saved.scale, true)));
  EXPECT_TRUE(is_stuck(settings, after_step(settings, state, state.scale, true)));
}

TEST(LossScale, StaysWhereItIsFixed) {
  LossScaleSettings settings;
  settings.scale = 1024;
  LossScaleState state = first_state(settings);
  for (int i = 0; i < 30; ++i) state = after_step(settings, state, state.scale, i % 3 == 0);
  EXPECT_EQ(state.scale, 1024);
  EXPECT_EQ(state.skipped, 10);
  for (int i = 0; i < 20; ++i) state = after_step(settings, state, state.scale, true);
  EXPECT_TRUE(is_stuck(settings, state));
}

TEST(LossScale, SurvivesTheManifest) {
  const LossScaleState state = {4096, 17, 3, 2};
  EXPECT_EQ(loss_scale_state_from(Json::parse(to_json(state).dump())), state);
}

TEST(LossScale, RefusesSettingsThatMakeNoSense) {
  LossScaleSettings settings = dynamic(0, 1, 2);
  EXPECT_NE(input_error_of([&] { check(settings); }).find("‹loss_scale_window›"),
            std::string::npos);
  settings = dynamic(5, 4, 2);
  EXPECT_NE(input_error_of([&] { check(settings); }).find("‹loss_scale_min›"), std::string::npos);
  settings = {};
  settings.scale = -1;
  EXPECT_NE(input_error_of([&] { check(settings); }).find("‹loss_scale›"), std::string::npos);
  settings.scale = std::nan("");
  EXPECT_NE(input_error_of([&] { check(settings); }).find("‹loss_scale›"), std::string::npos);
}

}  // namespace
}  // namespace millrace::train
