#pragma once

#include <string_view>

namespace millrace {
inline constexpr std::string_view kVersion = MILLRACE_VERSION;
}  // namespace millrace
