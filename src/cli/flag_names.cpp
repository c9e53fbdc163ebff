#include "cli/flag_names.h"

#include <algorithm>

#include "base/setting_names.h"

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

}  // namespace millrace::cli
