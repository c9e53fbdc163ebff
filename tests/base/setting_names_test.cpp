#include "base/setting_names.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace millrace {
namespace {

std::string shouted(std::string_view marked) {
  return write_settings(marked, [](std::string_view name) { return std::string(name) + "!"; });
}

TEST(SettingNames, MarkedNamesAreWrittenAsAsked) {
  EXPECT_EQ(shouted("‹nesterov› needs a ‹momentum› above 0."),
            "nesterov! needs a momentum! above 0.");
  EXPECT_EQ(shouted("‹adam_beta1›‹lr›"), "adam_beta1!lr!");
  EXPECT_EQ(plain_settings("lower ‹lr› or use ‹clip_norm›"), "lower lr or use clip_norm");
}

TEST(SettingNames, AllElseStaysAsItIs) {
  for (const char* text : {"", "no names", "‹", "›", "‹›", "‹lr", "‹two words›", "‹Lr›",
                           "--lr <lr> {lr}", "a \xe2\x80", "‹lr\xff›", "\xb9lr\xba"}) {
    EXPECT_EQ(shouted(text), text);
  }
  EXPECT_EQ(shouted("‹not ‹lr› ›"), "‹not lr! ›");
  EXPECT_EQ(shouted("‹a‹lr›"), "‹alr!");
  EXPECT_EQ(shouted(std::string_view("\0‹lr›", 9)), std::string_view("\0lr!", 4));
}

TEST(SettingNames, NamesAreMarkedWithUnderscores) {
  EXPECT_EQ(marked_setting("lr-milestones"), "‹lr_milestones›");
  EXPECT_EQ(marked_setting("lr_milestones"), marked_setting("lr-milestones"));
}

TEST(SettingNames, ErrorsSayPlainNamesAndKeepTheMarks) {
  try {
    fail_input("‹{}› is {}.", "lr", -1);
  } catch (const std::exception& error) {
    EXPECT_STREQ(error.what(), "lr is -1.");
    EXPECT_STREQ(marked_text(error), "‹lr› is -1.");
    const InputError copy = dynamic_cast<const InputError&>(error);
    EXPECT_STREQ(copy.marked(), "‹lr› is -1.");
  }
  EXPECT_STREQ(marked_text(std::runtime_error("of others")), "of others");
}

}  // namespace
}  // namespace millrace
