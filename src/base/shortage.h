// Errors that say that memory, or threads, ran out, in words for a user.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"

namespace millrace {

// Null for any other error.
inline const char* shortage_text(const std::exception& error) noexcept {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  const auto is = [&](std::errc code) { return system != nullptr && system->code() == code; };
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is(std::errc::not_enough_memory)) {
    return "There is not enough memory for this job.";
  }
  if (!is(std::errc::resource_unavailable_try_again)) return nullptr;
  return "No thread could be started: memory (ulimit -v) or the number of processes (ulimit -u) is "
         "limited.";
}

// What an error of any kind says, with marks where it has them; lives as long as the error.
inline const char* failure_text(const std::exception& error) noexcept {
  const char* shortage = shortage_text(error);
  return shortage == nullptr ? marked_text(error) : shortage;
}

}  // namespace millrace
