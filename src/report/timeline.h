// What a trace says: where the time of each device went. Plain data.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "runtime/trace.h"

namespace millrace::report {

// Nanoseconds of the trace's clock.
struct TimeWindow {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t steps = 0;  // finished within it; 0: unknown
};

// When each step ended on the slowest of the devices that took most of them. A device's step ends
// with an update before its next forward, or before the end of the trace. Empty where no updates
// were recorded.
std::vector<int64_t> step_ends(const runtime::TraceLog& log);

// `count` steps from `first`, which counts from 0 or, if -1, is chosen past the beginning. The
// whole trace where it has fewer or no steps.
TimeWindow steps_window(const runtime::TraceLog& log, int64_t first, int64_t count);

// All steps but the first, which warms up; the whole trace where it has fewer than two.
TimeWindow steady_window(const runtime::TraceLog& log);

struct DeviceTime {
  runtime::TraceDevice device;
  std::array<int64_t, runtime::kTraceCategories> spent = {};  // by category; overlaps count once
  int64_t busy = 0;                                           // forward, backward or update
  std::map<std::string, int64_t> waits;                       // by cause
};

struct TimeReport {
  TimeWindow window;
  std::vector<DeviceTime> devices;

  // Time not spent in forward, backward or update over all time: (p-1)/(m+p-1) for p equal stages
  // and m micro-batches with a flush. And over the time that was: (p-1)/m.
  double bubble_of_total() const;
  double bubble_of_ideal() const;
};

TimeReport time_report(const runtime::TraceLog& log, const TimeWindow& window);

// What a report says of a trace: its steady part, and the steps that pictures open with.
struct TraceFacts {
  TimeWindow shown;
  TimeReport times;
};

TraceFacts trace_facts(const runtime::TraceLog& log, int64_t first_step, int64_t steps);

}  // namespace millrace::report
