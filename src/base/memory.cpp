#include "base/memory.h"

#include <fstream>
#include <sstream>
#include <string>

namespace millrace {

int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes * 1024;
  }
  return INT64_MAX;
}

}  // namespace millrace
