#include "base/json_text.h"

namespace millrace {

bool is_nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (in_string) {
      if (letter == '\\') ++i;
      if (letter == '"') in_string = false;
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '[' || letter == '{') {
      if (++depth > kDeepestJson) return true;
    } else if (letter == ']' || letter == '}') {
      --depth;
    }
  }
  return false;
}

Json parse_json(std::string_view text) {
  if (is_nested_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace millrace
