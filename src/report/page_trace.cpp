#include "report/page_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "report/run_facts.h"

namespace millrace {
namespace {

constexpr size_t kMostCurves = 7;
constexpr double kMicroseconds = 1e3;
constexpr double kSeconds = 1e9;

std::vector<size_t> order_of(const TraceLog& log) {
  std::vector<size_t> order(log.devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TraceDevice& x = log.devices[a];
    const TraceDevice& y = log.devices[b];
    return std::tie(x.stage, x.node, x.device) < std::tie(y.stage, y.node, y.device);
  });
  return order;
}

int64_t beginning(const TraceLog& log) {
  int64_t first = log.events.empty() ? 0 : log.events.front().begin;
  for (const TraceEvent& event : log.events) first = std::min(first, event.begin);
  return first;
}

// Micro-batches under way on a device, after each change within the window.
std::vector<std::pair<int64_t, int>> under_way(const TraceLog& log, int device) {
  std::vector<std::pair<int64_t, int>> changes;
  for (const TraceEvent& event : log.events) {
    if (event.device != device || event.micro_batch < 0) continue;
    if (event.category == TraceCategory::forward) changes.emplace_back(event.begin, 1);
    if (event.category == TraceCategory::backward && !event.name.ends_with("weights")) {
      changes.emplace_back(event.end, -1);
    }
  }
  std::sort(changes.begin(), changes.end());
  int count = 0;
  for (auto& [time, change] : changes) {
    count = std::max(0, count + change);
    change = count;
  }
  return changes;
}

}  // namespace

Json page_trace(const TraceLog& log, const Window& window, int64_t& left_out) {
  const std::vector<size_t> order = order_of(log);
  std::vector<int> row_of(log.devices.size(), -1);
  Json json;
  json["devices"] = Json::array();
  for (size_t i = 0; i < std::min(order.size(), kMostPageDevices); ++i) {
    row_of[order[i]] = static_cast<int>(i);
    const TraceDevice& device = log.devices[order[i]];
    json["devices"].push_back(
        fmt::format("stage {} · {}:{}", device.stage, device.node, device.device));
  }
  json["categories"] = Json::array();
  for (int i = 0; i < kTraceCategories; ++i) {
    json["categories"].push_back(name_of(static_cast<TraceCategory>(i)));
  }
  std::vector<const TraceEvent*> events;
  for (const TraceEvent& event : log.events) {
    if (row_of.at(static_cast<size_t>(event.device)) >= 0) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const TraceEvent* a, const TraceEvent* b) { return a->begin < b->begin; });
  if (events.size() > kMostPageEvents) events.resize(kMostPageEvents);
  left_out = std::ssize(log.events) - std::ssize(events);
  const int64_t first = beginning(log);
  std::map<std::string, size_t> names;
  int64_t end = first + 1;
  json["events"] = Json::array();
  for (const TraceEvent* event : events) {
    const size_t name = names.try_emplace(event->name, names.size()).first->second;
    json["events"].push_back({row_of[static_cast<size_t>(event->device)],
                              static_cast<int>(event->category), name, event->micro_batch,
                              static_cast<double>(event->begin - first) / kMicroseconds,
                              static_cast<double>(event->end - event->begin) / kMicroseconds});
    end = std::max(end, event->end);
  }
  std::vector<std::string> listed(names.size());
  for (const auto& [name, index] : names) listed[index] = name;
  json["names"] = listed;
  const double length = static_cast<double>(end - first) / kMicroseconds;
  json["end"] = length;
  const double from = static_cast<double>(window.begin - first) / kMicroseconds;
  const double to = static_cast<double>(window.end - first) / kMicroseconds;
  if (from >= 0 && to > from && to <= length) json["window"] = {from, to};
  return json;
}

Json memory_over_time(const TraceLog& log, const Window& window, const Json& summary) {
  const Json devices = json_member(summary, "devices");
  Json curves = Json::array();
  std::set<int> stages;
  for (const size_t index : order_of(log)) {
    const TraceDevice& device = log.devices[index];
    if (curves.size() >= kMostCurves || !stages.insert(device.stage).second) continue;
    const std::string id = fmt::format("{}:{}", device.node, device.device);
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const Json& entry) {
      return json_text(entry, "id") == id;
    });
    if (found == devices.end()) continue;
    const auto peak = json_number(*found, "peak_bytes");
    const auto activations = json_number(json_member(*found, "breakdown"), "activations");
    const auto changes = under_way(log, static_cast<int>(index));
    int most = 0;
    for (const auto& [time, count] : changes) most = std::max(most, count);
    if (!peak || !activations || most == 0) continue;
    Json points = Json::array();
    const auto add = [&](int64_t time, int count) {
      points.push_back({static_cast<double>(time - window.begin) / kSeconds,
                        *peak - *activations * (1 - static_cast<double>(count) / most)});
    };
    int before = 0;
    for (const auto& [time, count] : changes) {
      if (time >= window.begin && time <= window.end) {
        if (points.empty()) add(window.begin, before);
        add(time, count);
      }
      before = count;
    }
    if (points.empty()) continue;
    points.push_back({static_cast<double>(window.end - window.begin) / kSeconds, points.back()[1]});
    curves.push_back({{"name", fmt::format("stage {}, {}", device.stage, id)}, {"points", points}});
  }
  return curves.empty() ? Json() : curves;
}

}  // namespace millrace
