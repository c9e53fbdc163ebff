#include "comm/hydra.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>

namespace millrace::comm {
namespace {

using Clock = std::chrono::steady_clock;

// A line; what has come of it if the rest does not come in time.
std::string read_line(int descriptor, Clock::time_point end) {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    pollfd entry = {descriptor, POLLIN, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (count < 0 && errno == EINTR) continue;
    char letter = 0;
    if (count <= 0 || ::read(descriptor, &letter, 1) != 1) break;
    line += letter;
  }
  return line;
}

bool ask(int descriptor, std::string_view question, std::string_view answer,
         Clock::time_point end) {
  return ::write(descriptor, question.data(), question.size()) ==
             static_cast<ssize_t>(question.size()) &&
         read_line(descriptor, end).starts_with(answer);
}

}  // namespace

int hydra_descriptor() {
  const char* number = std::getenv("PMI_FD");
  if (number == nullptr || std::getenv("MPI_LOCALNRANKS") == nullptr) return -1;
  return std::atoi(number);
}

bool leave_hydra(int descriptor, std::chrono::milliseconds patience) {
  const Clock::time_point end = Clock::now() + patience;
  return ask(descriptor, "cmd=barrier_in\n", "cmd=barrier_out", end) &&
         ask(descriptor, "cmd=finalize\n", "cmd=finalize_ack", end);
}

}  // namespace millrace::comm
