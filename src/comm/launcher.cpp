#include "comm/launcher.h"

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace millrace {

int launched_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* text = std::getenv(variable);
    if (text == nullptr || std::strlen(text) > 6) continue;
    const int ranks = std::atoi(text);
    if (ranks > 0) return ranks;
  }
  return 1;
}

}  // namespace millrace
