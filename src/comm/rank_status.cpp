#include "comm/rank_status.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/text.h"
#include "comm/launchers.h"

namespace millrace::comm {
namespace {

constexpr int kLooksAtEnd = 300;           // threads of a busy machine take long to end
constexpr useconds_t kLookAtEnd = 10'000;  // microseconds
constexpr int kInterrupted = 130;

// How Linux 6.15 and newer tell the status of a process that has ended, whoever its parent is.
struct ProcessInfo {
  uint64_t mask = 0;
  uint64_t other_numbers = 0;
  std::array<uint32_t, 11> ids = {};
  int32_t status = 0;
};
constexpr uint64_t kInfoHasStatus = 1 << 3;
constexpr unsigned long kGetProcessInfo = _IOWR(0xFF, 11, ProcessInfo);

}  // namespace

std::vector<std::string> stat_words(pid_t process) {
  const std::string line = read_process_file(process, "stat");
  const size_t close = line.rfind(')');
  if (close == std::string::npos || close + 2 > line.size()) return {};
  return split(std::string_view(line).substr(close + 2), ' ');
}

std::optional<int> status_of_ended(pid_t process, int handle) {
  constexpr size_t kStatus = 49;  // of the words behind the name
  for (int i = 0; i < kLooksAtEnd; ++i) {
    const std::vector<std::string> words = stat_words(process);
    if (words.size() > kStatus && words[0] == "Z") return std::atoi(words[kStatus].c_str());
    ProcessInfo info;
    info.mask = kInfoHasStatus;
    const bool told = ::ioctl(handle, kGetProcessInfo, &info) == 0;
    if (told && (info.mask & kInfoHasStatus) != 0) return info.status;
    if (!told && words.empty()) return {};
    ::usleep(kLookAtEnd);
  }
  return {};
}

std::string describe_rank_end(std::optional<int> status) {
  if (!status) return "is gone";
  if (WIFSIGNALED(*status)) {
    return fmt::format("was ended by signal {} ({})", WTERMSIG(*status),
                       ::strsignal(WTERMSIG(*status)));
  }
  const int code = WEXITSTATUS(*status);
  return code == 0 || code == kInterrupted ? "" : fmt::format("ended with status {}", code);
}

}  // namespace millrace::comm
