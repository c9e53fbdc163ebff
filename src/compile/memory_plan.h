// Fixed offsets for everything that lives within a run.
//
// Buffers whose lifetimes overlap never share bytes; others may. Pure arithmetic: no graph, no
// devices.
#pragma once

#include <cstdint>
#include <vector>

namespace millrace::compile {

inline constexpr int64_t kBufferAlignment = 64;

int64_t aligned(int64_t bytes);

// In use from instruction `first` to `last`, both included.
struct BufferRequest {
  int first = 0;
  int last = 0;
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one per request
  int64_t bytes = 0;             // the end of the highest buffer
  int64_t lower_bound = 0;       // the most bytes in use at one moment
  int peak_position = 0;         // that moment
};

MemoryPlan plan_memory(const std::vector<BufferRequest>& requests);

}  // namespace millrace::compile
