// One text, in the words of the command line and of Python.
#include "cli/flag_names.h"

#include <gtest/gtest.h>

#include "api/keywords.h"

namespace millrace::cli {
namespace {

TEST(FlagNames, SettingsAreFlagsHere) {
  EXPECT_EQ(with_flags("‹lr_schedule› step needs ‹lr_milestones›."),
            "--lr-schedule step needs --lr-milestones.");
  EXPECT_EQ(with_flags("--plan 'a_b' stays, and so does ‹this one›."),
            "--plan 'a_b' stays, and so does ‹this one›.");
}

TEST(FlagNames, AFlagTellsItsSetting) { EXPECT_EQ(setting_of("--adam-beta1"), "adam_beta1"); }

TEST(FlagNames, SettingsAreKeywordsInPython) {
  EXPECT_EQ(api::with_keywords("‹lr_schedule› step needs ‹lr_milestones›."),
            "schedule step needs milestones.");
  EXPECT_EQ(api::with_keywords("‹threads_per_device› is -1, ‹lr› is 0.1."),
            "threads is -1, lr is 0.1.");
}

}  // namespace
}  // namespace millrace::cli
