#include "cli/activity_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <string>

#include "cli/flag_names.h"
#include "cli/standard_files.h"

namespace millrace::cli {

ActivityLine::ActivityLine() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void ActivityLine::clear() {
  if (live_) print_error("\r\033[K");
  live_ = false;
}

void ActivityLine::on_activity(std::string_view what) {
  std::string line(what);
  line[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(line[0])));
  clear();
  print_error("{} ...{}", line, terminal_ ? "" : "\n");
  live_ = terminal_;
}

void ActivityLine::on_message(train::Severity severity, std::string_view sentence) {
  if (severity == train::Severity::note) return;
  clear();
  print_error("millrace: warning: {}\n", with_flags(sentence));
}

}  // namespace millrace::cli
