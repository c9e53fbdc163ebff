// The memory of this machine.
#pragma once

#include <cstdint>

namespace millrace {

// Bytes that programs can still take without others being pushed out; the largest number if the
// system does not tell.
int64_t available_memory();

}  // namespace millrace
