// A trace as the page's script takes it.
#pragma once

#include <optional>

#include "base/json.h"
#include "report/timeline.h"

namespace millrace {

inline constexpr size_t kMostPageEvents = 150000;
inline constexpr size_t kMostPageDevices = 256;

// {"devices", "categories", "names", "events": [[device, category, name, micro-batch, begin,
// length]], "end", "window"}, times in microseconds from the trace's beginning. At most
// kMostPageEvents events of kMostPageDevices devices; `left_out` says how many are missing.
Json page_trace(const TraceLog& log, const Window& window, int64_t& left_out);

// Memory over time of each device of `summary`, as [{"name", "points": [[seconds, bytes]]}]: what
// is always there, and of the activations the share of the micro-batches that are under way.
// Null where the trace does not tell.
Json memory_over_time(const TraceLog& log, const Window& window, const Json& summary);

}  // namespace millrace
