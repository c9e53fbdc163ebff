// Errors that reach a user.
//
// Set-up code throws; worker threads hand their exception to whoever joins them; broken
// invariants are asserts. Every message is one sentence that names the setting, file and offset,
// or device at fault and, where possible, what to do about it. Settings are marked in it, as
// setting_names.h says.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "base/setting_names.h"

namespace millrace {

// A sentence for a user. what() has the plain names of settings, for whoever prints it as it is;
// marked() has their marks, for the command line and for sentences that this one is part of.
class MarkedError : public std::runtime_error {
 public:
  explicit MarkedError(const std::string& marked)
      : std::runtime_error(plain_settings(marked)), marked_(marked) {}

  const char* marked() const noexcept { return marked_.what(); }

 private:
  std::runtime_error marked_;  // a text whose copies cannot fail
};

// Bad usage or bad input: the program ends with status 2 and nothing half-written.
class InputError : public MarkedError {
 public:
  using MarkedError::MarkedError;
};

// The job itself failed while running: status 1.
class JobError : public MarkedError {
 public:
  using MarkedError::MarkedError;
};

// What an error of any kind says, with marks where it has them; lives as long as the error.
inline const char* marked_text(const std::exception& error) noexcept {
  const auto* sentence = dynamic_cast<const MarkedError*>(&error);
  return sentence == nullptr ? error.what() : sentence->marked();
}

// Throws InputError with a formatted sentence.
template <typename... Arguments>
[[noreturn]] void fail_input(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw InputError(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Throws JobError with a formatted sentence.
template <typename... Arguments>
[[noreturn]] void fail_job(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  throw JobError(fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace millrace
