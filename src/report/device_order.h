// The order of devices in pictures.
#pragma once

#include <vector>

#include "runtime/trace.h"

namespace millrace::report {

// Indices into the log's devices: by stage, then by node and number.
std::vector<size_t> device_order(const runtime::TraceLog& log);

}  // namespace millrace::report
