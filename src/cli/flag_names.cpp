#include "cli/flag_names.h"

#include <algorithm>

#include "base/setting_names.h"
#include "base/text.h"

namespace millrace::cli {

std::string with_flags(std::string_view marked) {
  return write_settings(marked, [](std::string_view name) {
    std::string flag = "--" + std::string(name);
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
  });
}

std::string setting_of(std::string_view flag) {
  std::string name(flag.substr(flag.find_first_not_of('-')));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string nearest_flag(std::string_view word, const std::vector<std::string>& flags) {
  constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
      {"learning-rate", "lr"},      {"pretrained", "fine-tune"},
      {"imgsz", "image"},           {"dataset", "data"},
      {"val-split", "valid-share"}, {"output-dir", "checkpoint"},
      {"gpus", "devices"},          {"arch", "model"}};
  std::string name(word);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto has = [&](std::string_view flag) { return std::ranges::count(flags, flag) > 0; };
  std::vector<std::string> names = flags;
  for (const auto& [other, flag] : kElsewhere) {
    if (has(flag)) names.emplace_back(other);
  }
  const std::string close = nearest(name, names);
  if (has(close)) return close;
  for (const auto& [other, flag] : kElsewhere) {
    if (close == other) return std::string(flag);
  }
  for (const std::string& part : split(name, '-')) {
    if (has(part)) return part;
  }
  return "";
}

}  // namespace millrace::cli
