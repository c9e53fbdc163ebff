// The numbers that a flag takes, and what a user reads who gave another: "--seed is -1; give at
// least 0."
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace millrace::cli {

// Checks for CLI11, which the help of a flag does not show.
CLI::Validator between(double low, double high);
CLI::Validator at_least(double low);

// What CLI11 refused in the words of `command`, if it is about a number, without its full stop; or
// nothing.
std::string refusal_of(const CLI::ParseError& error, const CLI::App& command);

}  // namespace millrace::cli
