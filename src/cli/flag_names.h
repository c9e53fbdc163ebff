// Settings as flags.
#pragma once

#include <string>
#include <string_view>

namespace millrace::cli {

// A text of a layer below with its marked settings (base/setting_names.h) as flags: ‹lr_final› is
// --lr-final. Everything that the program prints or writes of such texts goes through here.
std::string with_flags(std::string_view marked);

// The setting of a flag: lr_final of --lr-final.
std::string setting_of(std::string_view flag);

}  // namespace millrace::cli
