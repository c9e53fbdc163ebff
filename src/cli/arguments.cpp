#include "cli/arguments.h"

#include <algorithm>
#include <fstream>

namespace millrace::cli {
namespace {

bool has_value_inside(const std::string& word, std::string_view flag) {
  return word.size() > flag.size() && word.starts_with(flag) && word[flag.size()] == '=';
}

}  // namespace

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  std::string argument;
  while (std::getline(file, argument, '\0')) arguments.push_back(argument);
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

std::vector<std::string> without_flag(const std::vector<std::string>& arguments,
                                      std::string_view flag) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == flag) {
      ++i;
    } else if (!has_value_inside(arguments[i], flag)) {
      rest.push_back(arguments[i]);
    }
  }
  return rest;
}

bool names_flag(const std::vector<std::string>& arguments, std::string_view flag) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& word) {
    return word == flag || has_value_inside(word, flag);
  });
}

}  // namespace millrace::cli
