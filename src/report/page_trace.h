// Traces as the page's script takes them.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "report/timeline.h"

namespace millrace::report {

inline constexpr size_t kMostPageDevices = 256;
inline constexpr size_t kMostPageBins = 30000;  // of all devices of a timeline

// A trace that is part of a timeline; `group` heads its devices where there are several.
struct TimelinePart {
  const runtime::TraceLog* log = nullptr;
  TimeWindow window;  // that the timeline opens with
  std::string group;
};

struct PageTimeline {
  // {"devices": [{"name", "group", "detail", "bins"}], "categories", "names", "events": [[device,
  // category, name, micro-batch, begin, length]], "end", "window"}, times in microseconds. A device
  // of a trace with too many events has those between the times "detail", and the rest as "bins":
  // equal parts of the time to "end" with the percentage of each category, one after the other.
  Json json;
  std::string note;  // what is not shown event by event; empty: nothing
};

// One time scale for all parts, which are moved so that their windows begin together. About
// `most_events` events and at most kMostPageDevices devices.
PageTimeline page_timeline(const std::vector<TimelinePart>& parts, size_t most_events);

// Memory over time of each device of `summary`, as [{"name", "points": [[seconds, bytes]]}]: what
// is always there, and of the activations the share of the micro-batches that are under way.
// Null where the trace does not tell.
Json memory_over_time(const runtime::TraceLog& log, const TimeWindow& window, const Json& summary);

}  // namespace millrace::report
