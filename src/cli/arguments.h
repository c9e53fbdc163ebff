// The words that a process was started with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace::cli {

// The arguments that this process was started with, without the program's name.
std::vector<std::string> own_arguments();

// Without `--flag value` and `--flag=value`.
std::vector<std::string> without_flag(const std::vector<std::string>& arguments,
                                      std::string_view flag);

// Whether the flag is among them; it may also be in a file that `--config` names.
bool names_flag(const std::vector<std::string>& arguments, std::string_view flag);

}  // namespace millrace::cli
