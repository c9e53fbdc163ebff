// Errors that reach a user.
//
// Set-up code throws; worker threads hand their exception to whoever joins them; broken
// invariants are asserts. Every message is one sentence that names the flag, file and offset,
// or device at fault and, where possible, what to do about it.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

// Bad usage or bad input: the program ends with status 2 and nothing half-written.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The job itself failed while running: status 1.
class JobError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

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
