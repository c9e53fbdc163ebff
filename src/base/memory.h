// The memory of this machine.
#pragma once

#include <cstdint>

namespace millrace {

// Bytes that programs can still take without others being pushed out; the largest number if the
// system does not tell.
int64_t available_memory();

// Bytes that a process takes besides the arenas of its devices: program, libraries, compiled jobs
// and buffers. `train` showed about 25 MiB with one device and no MPI, in two runs.
inline constexpr int64_t kProcessBytes = int64_t{32} << 20;

// Bytes that this machine has, or as many as the limit of this process's control group allows.
int64_t host_memory();

}  // namespace millrace
