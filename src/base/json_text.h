// JSON that others wrote.
#pragma once

#include <string_view>

#include "base/json.h"

namespace millrace {

// Brackets inside brackets of the deepest file that Millrace writes, many times over. What is
// copied or printed of deeper ones would overflow the stack.
inline constexpr int kDeepestJson = 128;

// Whether brackets outside of strings are nested deeper than that. Takes any bytes.
bool is_nested_too_deep(std::string_view text);

// The value of the text, discarded (`is_discarded`) if it is no JSON or nested too deep.
Json parse_json(std::string_view text);

}  // namespace millrace
