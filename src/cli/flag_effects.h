// Flags that do nothing beside the others that were given.
#pragma once

#include <CLI/App.hpp>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::cli {

// A parsed command as rules about its flags see it. Borrows the command.
class GivenFlags {
 public:
  explicit GivenFlags(const CLI::App& command) : command_(command) {}

  // Whether the user typed it; a default does not count.
  bool given(std::string_view flag) const;
  // As typed, or the default; empty if there is neither.
  std::string value(std::string_view flag) const;
  bool is(std::string_view flag, std::initializer_list<std::string_view> values) const;

 private:
  const CLI::Option* find(std::string_view flag) const;

  const CLI::App& command_;
};

// One or several flags, separated by spaces, and when they mean something. With an exclamation mark
// in front: all flags of the command but these.
struct FlagRule {
  std::string_view flags;
  bool (*works)(const GivenFlags& flags);
  std::string_view otherwise;  // "without --head": ends the sentence "--margin has no effect …"
  // What stands behind that, of the flag that was given; null: nothing.
  std::string (*names)(std::string_view flag) = nullptr;
};

// The rules of a command by its full name, such as "bench head"; empty where every flag works
// always. They stand in flag_rules.cpp.
std::vector<FlagRule> flag_rules(std::string_view command);

// Throws InputError for the first flag that the user gave in vain.
void require_effects(const CLI::App& command, const std::vector<FlagRule>& rules);

}  // namespace millrace::cli
