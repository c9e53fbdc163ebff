// The memory of this machine.
#pragma once

#include <cstdint>

namespace millrace {

// Bytes that programs can still take without others being pushed out; the largest number if the
// system does not tell.
int64_t available_memory();

// Bytes that this machine has, or as many as the limit of this process's control group allows.
int64_t host_memory();

}  // namespace millrace
