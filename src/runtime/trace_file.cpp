#include "runtime/trace_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace millrace {
namespace {

// Tracks of communication are numbered behind those of the devices.
constexpr int kCommunication = 1'000'000;
constexpr double kMostMicroseconds = 9e12;

int track_of(const TraceDevice& device, bool communication) {
  return device.device + (communication ? kCommunication : 0);
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

// Reads one event after the other and keeps which it is, for errors.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  TraceLog run(const Json& root) {
    const Json& events =
        root.is_object() && root.contains("traceEvents") ? root["traceEvents"] : root;
    if (!events.is_array()) {
      fail_input("'{}' is not a trace: it has no array 'traceEvents'.", source_);
    }
    for (const Json& event : events) {
      read(event);
      ++index_;
    }
    const Json dropped = root.is_object() ? root.value("dropped", Json()) : Json();
    if (dropped.is_number_integer()) log_.dropped = std::max<int64_t>(0, dropped.get<int64_t>());
    for (TraceDevice& device : log_.devices) {
      const auto known = stages_.find({device.node, device.device});
      if (known != stages_.end()) device.stage = known->second;
    }
    return std::move(log_);
  }

 private:
  void read(const Json& event) {
    if (!event.is_object()) fail("is not an object");
    const std::string phase = text(event, "ph");
    const std::string name = text(event, "name");
    if (phase == "M" && name == "thread_name") return read_stage(event);
    const auto category = category_of(text(event, "cat"));
    if (phase != "X" || !category) return;
    const double begin = microseconds(event, "ts");
    const double length = microseconds(event, "dur");
    if (length < 0) fail("ends before it begins");
    TraceEvent made;
    made.device = device(integer(event, "pid"), integer(event, "tid") % kCommunication);
    made.category = *category;
    made.name = name;
    made.begin = std::llround(begin * 1000);
    made.end = std::llround((begin + length) * 1000);
    const Json arguments = event.value("args", Json());
    if (arguments.is_object() && arguments.contains("micro_batch")) {
      made.micro_batch = integer(arguments, "micro_batch");
    }
    log_.events.push_back(std::move(made));
  }

  void read_stage(const Json& event) {
    const Json arguments = event.value("args", Json());
    if (!arguments.is_object() || !arguments.contains("stage")) return;
    stages_[{integer(event, "pid"), integer(event, "tid") % kCommunication}] =
        integer(arguments, "stage");
  }

  int device(int node, int number) {
    const auto [entry, added] =
        places_.insert({{node, number}, static_cast<int>(log_.devices.size())});
    if (added) log_.devices.push_back({node, number, 0});
    return entry->second;
  }

  std::optional<TraceCategory> category_of(std::string_view name) const {
    for (int i = 0; i < kTraceCategories; ++i) {
      if (name_of(static_cast<TraceCategory>(i)) == name) return static_cast<TraceCategory>(i);
    }
    return std::nullopt;
  }

  std::string text(const Json& event, const char* key) const {
    const auto entry = event.find(key);
    return entry != event.end() && entry->is_string() ? entry->get<std::string>() : std::string();
  }

  int integer(const Json& event, const char* key) const {
    const auto entry = event.find(key);
    if (entry == event.end() || !entry->is_number_integer()) {
      fail(fmt::format("has no whole number '{}'", key));
    }
    const bool huge =
        entry->is_number_unsigned() && entry->get<uint64_t>() > static_cast<uint64_t>(INT32_MAX);
    const int64_t value = huge ? int64_t{-1} : entry->get<int64_t>();
    if (value < 0 || value > INT32_MAX) fail(fmt::format("has a '{}' out of range", key));
    return static_cast<int>(value);
  }

  double microseconds(const Json& event, const char* key) const {
    const auto entry = event.find(key);
    if (entry == event.end() || !entry->is_number()) fail(fmt::format("has no number '{}'", key));
    const double value = entry->get<double>();
    if (!(std::abs(value) <= kMostMicroseconds)) fail(fmt::format("has a '{}' out of range", key));
    return value;
  }

  [[noreturn]] void fail(const std::string& what) const {
    fail_input("'{}' is not a trace that can be read: event {} {}.", source_, index_, what);
  }

  const std::string& source_;
  int64_t index_ = 0;
  TraceLog log_;
  std::map<std::pair<int, int>, int> places_;
  std::map<std::pair<int, int>, int> stages_;
};

}  // namespace

std::string trace_to_json(const TraceLog& log) {
  int64_t origin = log.events.empty() ? 0 : log.events.front().begin;
  for (const TraceEvent& event : log.events) origin = std::min(origin, event.begin);
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
  Json root;
  root["displayTimeUnit"] = "ms";
  root["dropped"] = log.dropped;
  root["traceEvents"] = std::move(events);
  return root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_trace(const std::filesystem::path& path, const TraceLog& log) {
  write_text(path, trace_to_json(log));
}

TraceLog parse_trace(std::string_view text, const std::string& source) {
  Json root;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail_input("'{}' is not JSON: mistake at byte {}.", source, error.byte);
  }
  return Reader(source).run(root);
}

}  // namespace millrace
