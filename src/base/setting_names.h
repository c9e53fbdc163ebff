// Settings in messages.
//
// A setting has one name for the command line, --lr-milestones, and another for a program,
// lr_milestones. Code below cli/ spells neither flags nor keywords: it marks the setting's name, as
// in "‹nesterov› needs a ‹momentum› above 0.", and whoever shows the text says how the name is
// written. Errors and what observers are told are such texts.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace millrace {

// The text with each marked name (lower case, digits and underscores between ‹ and ›) as `write`
// gives it; all else, and marks around anything else, stays. Takes any bytes.
std::string write_settings(std::string_view marked,
                           const std::function<std::string(std::string_view name)>& write);

// With the names as they are: "nesterov needs a momentum above 0."
std::string plain_settings(std::string_view marked);

// "‹lr_milestones›" of "lr_milestones" or "lr-milestones".
std::string marked_setting(std::string_view name);

}  // namespace millrace
