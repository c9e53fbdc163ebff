// Patterns that name layers and tensors: `fc`, `layer4.*.bn1`, `conv?`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

// Whether a dotted name, or the beginning of it up to a dot, fits the pattern: `fc` fits "fc",
// "fc.weight" and "fc.bias", but not "fc2". `*` stands for any characters, `?` for one.
bool fits_pattern(std::string_view pattern, std::string_view name);

// Any of them.
bool fits_any(const std::vector<std::string>& patterns, std::string_view name);

// "fc,layer4.*" as two patterns. Throws InputError naming the flag if one is empty.
std::vector<std::string> parse_patterns(std::string_view text, std::string_view flag);

}  // namespace millrace
