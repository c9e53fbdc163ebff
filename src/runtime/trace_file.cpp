#include "runtime/trace_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace millrace::runtime {
namespace {

int track_of(const TraceDevice& device, int lane) {
  return device.device + lane * kCommunicationTracks;
}

// Lanes of a device's communication, from 1. Of what runs on one track, each lies within another or
// beside it: readers drop what overlaps otherwise.
class Lanes {
 public:
  // In the order in which they begin, the longer first.
  int take(int64_t begin, int64_t end) {
    Lane* best = nullptr;
    for (Lane& lane : open_) {
      while (!lane.empty() && lane.back().second <= begin) lane.pop_back();
      const bool fits = lane.empty() || end <= lane.back().second;
      if (fits && (best == nullptr || begun(lane) > begun(*best))) best = &lane;
    }
    if (best == nullptr) best = &open_.emplace_back();
    best->emplace_back(begin, end);
    return static_cast<int>(best - open_.data()) + 1;
  }

  int count() const { return static_cast<int>(open_.size()); }

 private:
  using Lane = std::vector<std::pair<int64_t, int64_t>>;  // of what has not ended

  static int64_t begun(const Lane& lane) { return lane.empty() ? -1 : lane.back().first; }

  std::vector<Lane> open_;
};

struct LanesOfLog {
  std::vector<int> events;         // 0: the device's own track
  std::vector<int> instructions;   // likewise
  std::vector<int> communication;  // how many each device has, at least 1
};

LanesOfLog lanes_of(const TraceLog& log) {
  struct Item {
    int device;
    int64_t begin, end;
    int* lane;
  };
  LanesOfLog lanes = {
      std::vector<int>(log.events.size()), std::vector<int>(log.instructions.size()), {}};
  std::vector<Item> items;
  for (size_t i = 0; i < log.events.size(); ++i) {
    const TraceEvent& one = log.events[i];
    if (one.category != TraceCategory::communication) continue;
    items.push_back({one.device, one.begin, one.end, &lanes.events[i]});
  }
  for (size_t i = 0; i < log.instructions.size(); ++i) {
    const TraceInstruction& one = log.instructions[i];
    if (!one.label.communicates) continue;
    items.push_back({one.device, one.begin, one.end, &lanes.instructions[i]});
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return std::pair(a.begin, b.end) < std::pair(b.begin, a.end);
  });
  std::vector<Lanes> devices(log.devices.size());
  for (const Item& item : items) {
    *item.lane = devices.at(static_cast<size_t>(item.device)).take(item.begin, item.end);
  }
  for (const Lanes& device : devices) lanes.communication.push_back(std::max(1, device.count()));
  return lanes;
}

Json name_event(const char* what, const TraceDevice& device, int track, std::string name) {
  Json event;
  event["ph"] = "M";
  event["name"] = what;
  event["pid"] = device.node;
  event["tid"] = track;
  event["args"]["name"] = std::move(name);
  return event;
}

std::string device_name(const TraceDevice& device) {
  return fmt::format("device {}:{}, stage {}", device.node, device.device, device.stage);
}

std::string name_of_lane(int lane) {
  if (lane == 0) return "";
  return lane == 1 ? ", communication" : fmt::format(", communication {}", lane);
}

Json event_json(const TraceLog& log, const TraceEvent& event, int lane, int64_t origin) {
  const TraceDevice& device = log.devices.at(static_cast<size_t>(event.device));
  Json json;
  json["ph"] = "X";
  json["name"] = event.name;
  json["cat"] = name_of(event.category);
  json["pid"] = device.node;
  json["tid"] = track_of(device, lane);
  json["ts"] = static_cast<double>(event.begin - origin) / 1000;
  json["dur"] = static_cast<double>(event.end - event.begin) / 1000;
  if (event.micro_batch >= 0) json["args"]["micro_batch"] = event.micro_batch;
  return json;
}

Json instruction_json(const TraceLog& log, const TraceInstruction& instruction, int lane,
                      int64_t origin) {
  const TraceDevice& device = log.devices.at(static_cast<size_t>(instruction.device));
  const TraceLabel& label = instruction.label;
  Json json;
  json["ph"] = "X";
  json["name"] = label.name;
  json["cat"] = kInstructionCategory;
  json["pid"] = device.node;
  json["tid"] = track_of(device, lane);
  json["ts"] = static_cast<double>(instruction.begin - origin) / 1000;
  json["dur"] = static_cast<double>(instruction.end - instruction.begin) / 1000;
  json["args"] = {{"kind", label.kind},
                  {"layer", label.layer},
                  {"bytes", label.bytes},
                  {"arithmetic", label.arithmetic}};
  if (instruction.micro_batch >= 0) json["args"]["micro_batch"] = instruction.micro_batch;
  return json;
}

}  // namespace

std::string trace_to_json(const TraceLog& log, bool simulated) {
  const int64_t origin = earliest(log);
  const LanesOfLog lanes = lanes_of(log);
  Json events = Json::array();
  for (size_t i = 0; i < log.devices.size(); ++i) {
    const TraceDevice& device = log.devices[i];
    events.push_back(name_event("process_name", device, 0, fmt::format("node {}", device.node)));
    for (int lane = 0; lane <= lanes.communication[i]; ++lane) {
      Json track = name_event("thread_name", device, track_of(device, lane),
                              device_name(device) + name_of_lane(lane));
      track["args"]["stage"] = device.stage;
      events.push_back(std::move(track));
    }
  }
  for (size_t i = 0; i < log.events.size(); ++i) {
    events.push_back(event_json(log, log.events[i], lanes.events[i], origin));
  }
  for (size_t i = 0; i < log.instructions.size(); ++i) {
    events.push_back(instruction_json(log, log.instructions[i], lanes.instructions[i], origin));
  }
  Json root;
  root["displayTimeUnit"] = "ms";
  root["dropped"] = log.dropped;
  if (simulated) root["simulated"] = true;
  root["traceEvents"] = std::move(events);
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_trace(const std::filesystem::path& path, const TraceLog& log, bool simulated) {
  write_text(path, trace_to_json(log, simulated));
}

}  // namespace millrace::runtime
