// Ending politely on SIGINT and SIGTERM.
#pragma once

#include <atomic>

namespace millrace {

// From now on the first SIGINT or SIGTERM sets the flag that is returned; a second one ends the
// program as usual. The flag lives as long as the process: a signal handler can reach nothing
// else.
const std::atomic<bool>& stop_on_signals();

}  // namespace millrace
