// Standard output and standard error, which may be closed, full, or lead to nobody.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace millrace::cli {

// Before the program opens anything: a standard file that whoever started it had closed leads
// nowhere from now on. Else the next file opened would take its number, and all that is printed.
void open_standard_files();

// Writes to standard error. What cannot be written there is lost: a log on a full disk ends no job.
void write_error(std::string_view text);

template <class... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write_error(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes out what was printed. A sentence if any of it was lost, also earlier; else empty.
std::string finish_output();

}  // namespace millrace::cli
