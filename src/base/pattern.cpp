#include "base/pattern.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace millrace {
namespace {

// Goes back to the last star alone, which is enough, so time is bounded by the product of lengths.
bool fits_whole(std::string_view pattern, std::string_view name) {
  size_t at = 0, star = std::string_view::npos, behind_star = 0;
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      behind_star = i;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == name[i])) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++behind_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

bool fits_pattern(std::string_view pattern, std::string_view name) {
  if (fits_whole(pattern, name)) return true;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (fits_whole(pattern, name.substr(0, dot))) return true;
  }
  return false;
}

bool fits_any(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return fits_pattern(pattern, name); });
}

std::vector<std::string> parse_patterns(std::string_view text, std::string_view flag) {
  std::vector<std::string> patterns = split(text, ',');
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) fail_input("{} '{}' has an empty pattern; write fc,layer4.", flag, text);
  }
  return patterns;
}

}  // namespace millrace
