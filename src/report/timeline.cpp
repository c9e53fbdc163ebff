#include "report/timeline.h"

#include <algorithm>

namespace millrace::report {
namespace {

using Interval = std::pair<int64_t, int64_t>;

// The length of the union.
int64_t covered(std::vector<Interval> intervals) {
  if (!std::is_sorted(intervals.begin(), intervals.end())) {
    std::sort(intervals.begin(), intervals.end());
  }
  int64_t total = 0;
  int64_t reached = INT64_MIN;
  for (const auto& [begin, end] : intervals) {
    const int64_t from = std::max(begin, reached);
    if (end > from) total += end - from;
    reached = std::max(reached, end);
  }
  return total;
}

TimeWindow whole_window(const runtime::TraceLog& log, const std::vector<int64_t>& ends) {
  TimeWindow window;
  if (log.events.empty()) return window;
  window.begin = INT64_MAX;
  window.end = INT64_MIN;
  for (const runtime::TraceEvent& event : log.events) {
    window.begin = std::min(window.begin, event.begin);
    window.end = std::max(window.end, event.end);
  }
  window.steps = std::ssize(ends);
  return window;
}

bool computes(runtime::TraceCategory category) {
  return category == runtime::TraceCategory::forward ||
         category == runtime::TraceCategory::backward || category == runtime::TraceCategory::update;
}

double total_busy(const TimeReport& report) {
  int64_t busy = 0;
  for (const DeviceTime& device : report.devices) busy += device.busy;
  return static_cast<double>(busy);
}

double total_time(const TimeReport& report) {
  return static_cast<double>(report.window.end - report.window.begin) *
         static_cast<double>(report.devices.size());
}

// Ends of updates that a forward or nothing follows.
std::vector<int64_t> step_ends_of(std::vector<const runtime::TraceEvent*> events) {
  const auto earlier = [](const runtime::TraceEvent* a, const runtime::TraceEvent* b) {
    return a->begin < b->begin;
  };
  if (!std::is_sorted(events.begin(), events.end(), earlier)) {
    std::stable_sort(events.begin(), events.end(), earlier);
  }
  std::vector<int64_t> ends;
  int64_t last_update = -1;
  bool open = false;
  for (const runtime::TraceEvent* event : events) {
    if (event->category == runtime::TraceCategory::forward && open) {
      ends.push_back(last_update);
      open = false;
    }
    if (event->category != runtime::TraceCategory::update) continue;
    last_update = event->end;
    open = true;
  }
  if (open) ends.push_back(last_update);
  return ends;
}

TimeWindow steps_window(const runtime::TraceLog& log, const std::vector<int64_t>& ends,
                        int64_t first, int64_t count) {
  TimeWindow window = whole_window(log, ends);
  if (std::ssize(ends) <= count) return window;
  const int64_t last_first = std::ssize(ends) - count;
  if (first < 0) first = std::max<int64_t>(1, last_first / 2);
  first = std::min(first, last_first);
  if (first > 0) window.begin = ends[static_cast<size_t>(first) - 1];
  window.end = ends[static_cast<size_t>(first + count) - 1];
  window.steps = count;
  return window;
}

TimeWindow steady_window(const runtime::TraceLog& log, const std::vector<int64_t>& ends) {
  if (ends.size() < 2) return whole_window(log, ends);
  return {ends.front(), ends.back(), std::ssize(ends) - 1};
}

}  // namespace

std::vector<int64_t> step_ends(const runtime::TraceLog& log) {
  std::vector<std::vector<const runtime::TraceEvent*>> by_device(log.devices.size());
  for (const runtime::TraceEvent& event : log.events) {
    by_device.at(static_cast<size_t>(event.device)).push_back(&event);
  }
  std::vector<int64_t> latest;
  for (auto& events : by_device) {
    std::vector<int64_t> ends = step_ends_of(std::move(events));
    if (ends.size() < latest.size()) continue;
    if (ends.size() == latest.size()) {
      for (size_t i = 0; i < ends.size(); ++i) ends[i] = std::max(ends[i], latest[i]);
    }
    latest = std::move(ends);
  }
  return latest;
}

TimeWindow steps_window(const runtime::TraceLog& log, int64_t first, int64_t count) {
  return steps_window(log, step_ends(log), first, count);
}

TimeWindow steady_window(const runtime::TraceLog& log) {
  return steady_window(log, step_ends(log));
}

TraceFacts trace_facts(const runtime::TraceLog& log, int64_t first_step, int64_t steps) {
  const std::vector<int64_t> ends = step_ends(log);
  return {steps_window(log, ends, first_step, steps), time_report(log, steady_window(log, ends))};
}

double TimeReport::bubble_of_total() const {
  const double all = total_time(*this);
  return all > 0 ? 1 - total_busy(*this) / all : 0;
}

double TimeReport::bubble_of_ideal() const {
  const double busy = total_busy(*this);
  return busy > 0 ? (total_time(*this) - busy) / busy : 0;
}

TimeReport time_report(const runtime::TraceLog& log, const TimeWindow& window) {
  struct Intervals {
    std::array<std::vector<Interval>, runtime::kTraceCategories> by_category;
    std::map<std::string, std::vector<Interval>> waits;
    std::vector<Interval> busy;
  };
  std::vector<Intervals> intervals(log.devices.size());
  for (const runtime::TraceEvent& event : log.events) {
    const Interval part = {std::max(event.begin, window.begin), std::min(event.end, window.end)};
    if (part.first >= part.second) continue;
    Intervals& own = intervals.at(static_cast<size_t>(event.device));
    own.by_category[static_cast<size_t>(event.category)].push_back(part);
    if (event.category == runtime::TraceCategory::wait) own.waits[event.name].push_back(part);
    if (computes(event.category)) own.busy.push_back(part);
  }
  TimeReport report;
  report.window = window;
  for (size_t i = 0; i < log.devices.size(); ++i) {
    DeviceTime device;
    device.device = log.devices[i];
    for (size_t k = 0; k < device.spent.size(); ++k) {
      device.spent[k] = covered(std::move(intervals[i].by_category[k]));
    }
    for (auto& [cause, parts] : intervals[i].waits) device.waits[cause] = covered(std::move(parts));
    device.busy = covered(std::move(intervals[i].busy));
    report.devices.push_back(std::move(device));
  }
  return report;
}

}  // namespace millrace::report
