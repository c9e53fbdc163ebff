#include "runtime/trace_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

namespace millrace::runtime {
namespace {

int track_of(const TraceDevice& device, bool communication) {
  return device.device + (communication ? kCommunicationTracks : 0);
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

Json event_json(const TraceLog& log, const TraceEvent& event, int64_t origin) {
  const TraceDevice& device = log.devices.at(static_cast<size_t>(event.device));
  const bool communication = event.category == TraceCategory::communication;
  Json json;
  json["ph"] = "X";
  json["name"] = event.name;
  json["cat"] = name_of(event.category);
  json["pid"] = device.node;
  json["tid"] = track_of(device, communication);
  json["ts"] = static_cast<double>(event.begin - origin) / 1000;
  json["dur"] = static_cast<double>(event.end - event.begin) / 1000;
  if (event.micro_batch >= 0) json["args"]["micro_batch"] = event.micro_batch;
  return json;
}

Json instruction_json(const TraceLog& log, const TraceInstruction& instruction, int64_t origin) {
  const TraceDevice& device = log.devices.at(static_cast<size_t>(instruction.device));
  const TraceLabel& label = instruction.label;
  Json json;
  json["ph"] = "X";
  json["name"] = label.name;
  json["cat"] = kInstructionCategory;
  json["pid"] = device.node;
  json["tid"] = track_of(device, label.communicates);
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
  Json events = Json::array();
  for (const TraceDevice& device : log.devices) {
    events.push_back(name_event("process_name", device, 0, fmt::format("node {}", device.node)));
    for (const bool communication : {false, true}) {
      Json track = name_event("thread_name", device, track_of(device, communication),
                              device_name(device) + (communication ? ", communication" : ""));
      track["args"]["stage"] = device.stage;
      events.push_back(std::move(track));
    }
  }
  for (const TraceEvent& event : log.events) events.push_back(event_json(log, event, origin));
  for (const TraceInstruction& one : log.instructions) {
    events.push_back(instruction_json(log, one, origin));
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
