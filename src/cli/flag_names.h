// Settings as flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::cli {

// A text of a layer below with its marked settings (base/setting_names.h) as flags: ‹lr_final› is
// --lr-final. Everything that the program prints or writes of such texts goes through here.
std::string with_flags(std::string_view marked);

// The setting of a flag: lr_final of --lr-final.
std::string setting_of(std::string_view flag);

// The one of these flags, without their dashes, that a word which is none of them was meant as: the
// nearest in letters, one that other programs call so ("learning_rate"), or one of its words
// ("batch-size"); empty if there is none.
std::string nearest_flag(std::string_view word, const std::vector<std::string>& flags);

}  // namespace millrace::cli
