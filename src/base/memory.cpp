#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace millrace {

namespace {

int64_t read_meminfo(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == wanted) return kibibytes * 1024;
  }
  return INT64_MAX;
}

int64_t read_limit(const std::string& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : INT64_MAX;  // "max" is no number
}

}  // namespace

int64_t available_memory() { return read_meminfo("MemAvailable:"); }

int64_t host_memory() {
  int64_t least = std::min(read_meminfo("MemTotal:"), read_limit("/sys/fs/cgroup/memory.max"));
  least = std::min(least, read_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes"));
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) {
      least = std::min(least, read_limit("/sys/fs/cgroup" + line.substr(3) + "/memory.max"));
    }
  }
  return least;
}

}  // namespace millrace
