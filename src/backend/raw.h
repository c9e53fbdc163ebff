// Opens addresses. For the backends alone: no other layer includes this file, which a test checks.
#pragma once

#include "backend/address.h"

namespace millrace::backend {

// Where the memory at `address` can be reached by this processor: `distance` bytes further on.
inline std::byte* raw(DeviceAddress address, int64_t distance) {
  return reinterpret_cast<std::byte*>(address.value_ + static_cast<uintptr_t>(distance));
}

}  // namespace millrace::backend
