// Flags that stand in files, and flags that stand for others.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace millrace::cli {

// The words of a command line with those that its files --config say, and that --fine-tune stands
// for, put behind the name of the command. What is on the command line wins over files, later files
// over earlier ones, and all over --fine-tune. Of commands without these flags nothing changes.
// Throws InputError naming file and line.
std::vector<std::string> with_config(const CLI::App& program, std::vector<std::string> arguments);

// The flags that a parsed command was given, as a file for --config. --resume and what was put into
// other flags is left out.
std::string given_as_yaml(const CLI::App& command);

// All of its flags that have a value, given or not.
std::string settings_as_yaml(const CLI::App& command);

}  // namespace millrace::cli
