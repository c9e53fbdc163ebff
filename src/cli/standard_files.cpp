#include "cli/standard_files.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace millrace::cli {

void open_standard_files() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) return;
  }
}

void write_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) text.remove_prefix(static_cast<size_t>(count));
  }
}

std::string finish_output() {
  errno = 0;
  const bool is_lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!is_lost) return "";
  const std::string reason = errno != 0 ? fmt::format(": {}", ::strerror(errno)) : "";
  return fmt::format("Not all that was printed could be written to standard output{}.", reason);
}

}  // namespace millrace::cli
