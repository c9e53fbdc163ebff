// The version of the program and of its plug-ins.
#pragma once

#include <string_view>

namespace millrace {
inline constexpr std::string_view kVersion = MILLRACE_VERSION;
}  // namespace millrace
