#include "cli/flag_effects.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace millrace::cli {
namespace {

bool names(const CLI::Option& option, const std::vector<std::string>& flags) {
  return std::any_of(flags.begin(), flags.end(),
                     [&](const std::string& flag) { return option.check_name(flag); });
}

}  // namespace

const CLI::Option* GivenFlags::find(std::string_view flag) const {
  return command_.get_option_no_throw(std::string(flag));
}

bool GivenFlags::given(std::string_view flag) const {
  const CLI::Option* option = find(flag);
  return option != nullptr && option->count() > 0;
}

std::string GivenFlags::value(std::string_view flag) const {
  const CLI::Option* option = find(flag);
  if (option == nullptr) return "";
  return option->count() > 0 ? option->results().back() : option->get_default_str();
}

bool GivenFlags::is(std::string_view flag, std::initializer_list<std::string_view> values) const {
  const std::string own = value(flag);
  return std::find(values.begin(), values.end(), own) != values.end();
}

void require_effects(const CLI::App& command, const std::vector<FlagRule>& rules) {
  const GivenFlags flags(command);
  for (const FlagRule& rule : rules) {
    const bool all_but = rule.flags.starts_with('!');
    const std::vector<std::string> listed = split(rule.flags.substr(all_but ? 1 : 0), ' ');
    for (const CLI::Option* option : command.get_options()) {
      if (option->count() == 0 || names(*option, listed) == all_but || rule.works(flags)) continue;
      const std::string names = rule.names == nullptr ? "" : rule.names(option->get_name());
      fail_input("{} has no effect {}{}.", option->get_name(), rule.otherwise, names);
    }
  }
}

}  // namespace millrace::cli
