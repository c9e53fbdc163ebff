#include "base/setting_names.h"

#include <algorithm>

namespace millrace {
namespace {

constexpr std::string_view kOpens = "‹", kCloses = "›";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";

}  // namespace

std::string write_settings(std::string_view marked,
                           const std::function<std::string(std::string_view name)>& write) {
  std::string text;
  while (true) {
    const size_t mark = marked.find(kOpens);
    text += marked.substr(0, mark);
    if (mark == std::string_view::npos) return text;
    marked.remove_prefix(mark + kOpens.size());
    const std::string_view name = marked.substr(0, marked.find_first_not_of(kLetters));
    const bool closed = marked.substr(name.size()).starts_with(kCloses);
    if (name.empty() || !closed) {
      text += kOpens;
      continue;
    }
    text += write(name);
    marked.remove_prefix(name.size() + kCloses.size());
  }
}

std::string plain_settings(std::string_view marked) {
  return write_settings(marked, [](std::string_view name) { return std::string(name); });
}

std::string marked_setting(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text.insert(0, kOpens).append(kCloses);
}

}  // namespace millrace
