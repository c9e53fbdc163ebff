#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "report/page_trace.h"
#include "report/run_facts.h"

namespace millrace::report {
namespace {

constexpr size_t kMostCurves = 7;
constexpr size_t kMostPoints = 3000;  // of a curve
constexpr double kSeconds = 1e9;

using Change = std::pair<int64_t, int>;  // when, and how many micro-batches from then on

// Micro-batches under way on a device: from the forward pass to the end of the last piece of the
// backward pass. Gradients of weights that are computed later hold no activations of the others.
std::vector<Change> under_way(const runtime::TraceLog& log, int device) {
  std::vector<const runtime::TraceEvent*> events;
  for (const runtime::TraceEvent& event : log.events) {
    if (event.device == device && event.micro_batch >= 0) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const runtime::TraceEvent* a, const runtime::TraceEvent* b) {
                     return a->begin < b->begin;
                   });
  std::map<int64_t, int64_t> ends;  // of those under way, by micro-batch; -1: not yet
  std::vector<Change> changes;
  for (const runtime::TraceEvent* event : events) {
    const auto known = ends.find(event->micro_batch);
    if (event->category == runtime::TraceCategory::forward) {
      if (known != ends.end()) {
        if (known->second < 0) continue;
        changes.emplace_back(known->second, -1);
      }
      changes.emplace_back(event->begin, 1);
      ends[event->micro_batch] = -1;
    }
    if (event->category == runtime::TraceCategory::backward && known != ends.end() &&
        !event->name.ends_with("weights")) {
      known->second = std::max(known->second, event->end);
    }
  }
  for (const auto& [micro_batch, end] : ends) {
    if (end >= 0) changes.emplace_back(end, -1);
  }
  std::sort(changes.begin(), changes.end());
  int count = 0;
  for (auto& [time, change] : changes) {
    count = std::max(0, count + change);
    change = count;
  }
  return changes;
}

// The largest of each few points, so that peaks stay.
Json thinned(const Json& points) {
  const size_t stride = (points.size() + kMostPoints - 1) / kMostPoints;
  if (stride <= 1) return points;
  Json kept = Json::array();
  for (size_t i = 0; i < points.size(); i += stride) {
    size_t best = i;
    for (size_t k = i; k < std::min(points.size(), i + stride); ++k) {
      if (points[k][1].get<double>() > points[best][1].get<double>()) best = k;
    }
    kept.push_back(points[best]);
  }
  return kept;
}

// Of the changes within the window; empty without any.
Json points_of(const std::vector<Change>& changes, const TimeWindow& window, double peak,
               double activations) {
  Json points = Json::array();
  int most = 0;
  for (const auto& [time, count] : changes) most = std::max(most, count);
  if (most == 0) return points;
  const auto add = [&](int64_t time, int count) {
    points.push_back({static_cast<double>(time - window.begin) / kSeconds,
                      peak - activations * (1 - static_cast<double>(count) / most)});
  };
  int before = 0;
  for (const auto& [time, count] : changes) {
    if (time >= window.begin && time <= window.end) {
      if (points.empty()) add(window.begin, before);
      add(time, count);
    }
    before = count;
  }
  if (points.empty()) return points;
  points.push_back({static_cast<double>(window.end - window.begin) / kSeconds, points.back()[1]});
  return thinned(points);
}

}  // namespace

Json memory_over_time(const runtime::TraceLog& log, const TimeWindow& window, const Json& summary) {
  Json curves = Json::array();
  std::set<std::string> stages;
  for (const Json& entry : json_member(summary, "devices")) {
    const std::string id = json_text(entry, "id"), stage = json_text(entry, "stage");
    const auto found = std::find_if(log.devices.begin(), log.devices.end(),
                                    [&](const runtime::TraceDevice& device) {
                                      return fmt::format("{}:{}", device.node, device.device) == id;
                                    });
    const auto peak = json_number(entry, "peak_bytes");
    const auto activations = json_number(json_member(entry, "breakdown"), "activations");
    if (found == log.devices.end() || !peak || !activations || curves.size() >= kMostCurves ||
        !stages.insert(stage).second) {
      continue;
    }
    const Json points = points_of(under_way(log, static_cast<int>(found - log.devices.begin())),
                                  window, *peak, *activations);
    if (points.empty()) continue;
    curves.push_back({{"name", fmt::format("stage {}, {}", stage, id)}, {"points", points}});
  }
  return curves.empty() ? Json() : curves;
}

}  // namespace millrace::report
