#include <fmt/format.h>

#include "base/text.h"
#include "report/report.h"
#include "report/timeline.h"

namespace millrace {
namespace {

// Text for a cell: no line breaks, no bars.
std::string cell(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe += '\\';
    safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return safe;
}

std::string heading(const RunFile& file) {
  return fmt::format("# {}\n\n", cell(file.path.filename().string()));
}

std::string value_text(const Json& value) {
  if (value.is_string()) return cell(value.get<std::string>());
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  return cell(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json member(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto entry = object.find(key);
  return entry == object.end() ? Json() : *entry;
}

std::string bytes_text(const Json& value) {
  if (!value.is_number_integer() || value < 0) return "–";
  return format_bytes(value.get<uint64_t>());
}

std::string row(const std::vector<std::string>& cells) {
  std::string line = "|";
  for (const std::string& text : cells) line += fmt::format(" {} |", text);
  return line + "\n";
}

std::string head(const std::vector<std::string>& cells) {
  std::string line = row(cells) + "|";
  for (size_t i = 0; i < cells.size(); ++i) line += i == 0 ? "---|" : "---:|";
  return line + "\n";
}

std::string share(int64_t part, double whole) {
  if (whole <= 0) return "–";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / whole);
}

std::string device_text(const TraceDevice& device) {
  return fmt::format("{}:{}", device.node, device.device);
}

std::string describe_waits(const TimeReport& report) {
  std::map<std::string, int64_t> causes;
  for (const DeviceTime& device : report.devices) {
    for (const auto& [cause, time] : device.waits) causes[cause] += time;
  }
  if (causes.empty()) return "No waits were recorded.\n";
  const double span = static_cast<double>(report.window.end - report.window.begin) *
                      static_cast<double>(report.devices.size());
  std::string text = head({"wait for", "seconds, all devices", "of all time"});
  for (const auto& [cause, time] : causes) {
    text += row(
        {cell(cause), fmt::format("{:.4f}", static_cast<double>(time) / 1e9), share(time, span)});
  }
  return text;
}

}  // namespace

std::string describe_summary(const RunFile& file) {
  const Json& run = file.summary;
  std::string text = heading(file);
  for (const char* key :
       {"model", "global_batch", "steps", "precision", "schedule", "samples_per_second",
        "predicted_samples_per_second", "predicted_seconds_per_step", "fits"}) {
    const Json value = member(run, key);
    if (!value.is_null()) text += fmt::format("- {}: {}\n", key, value_text(value));
  }
  const Json median = member(member(run, "seconds_per_step"), "median");
  if (median.is_number()) text += fmt::format("- seconds per step: {}\n", value_text(median));
  const Json losses = member(run, "loss");
  if (losses.is_array() && !losses.empty()) {
    text += fmt::format("- loss: {} at first, {} at last\n", value_text(losses.front()),
                        value_text(losses.back()));
  }
  constexpr const char* kParts[] = {"weights",     "gradients", "optimizer",
                                    "activations", "workspace", "communication"};
  text += "\n";
  text += head({"device", "stage", "peak", "weights", "gradients", "optimizer", "activations",
                "workspace", "communication"});
  for (const Json& device : run["devices"]) {
    const Json id = member(device, "id");
    const Json stage = member(device, "stage");
    std::vector<std::string> cells = {id.is_null() ? "–" : value_text(id),
                                      stage.is_null() ? "–" : value_text(stage),
                                      bytes_text(member(device, "peak_bytes"))};
    const Json breakdown = member(device, "breakdown");
    for (const char* part : kParts) cells.push_back(bytes_text(member(breakdown, part)));
    text += row(cells);
  }
  return text;
}

std::string describe_trace(const RunFile& file) {
  const TimeReport report = time_report(file.trace, steady_window(file.trace));
  const int64_t nanoseconds = report.window.end - report.window.begin;
  const auto span = static_cast<double>(nanoseconds);
  std::string text = heading(file);
  text += fmt::format("{:.4f} s on {} devices", span / 1e9, report.devices.size());
  if (report.window.steps > 0) text += fmt::format(", {} steps", report.window.steps);
  text += ".\n\n";
  text += fmt::format(
      "- bubble, share of all time (as (p-1)/(m+p-1)): {:.1f} %\n"
      "- bubble, relative to the work (as (p-1)/m): {:.1f} %\n",
      100 * report.bubble_of_total(), 100 * report.bubble_of_ideal());
  if (file.trace.dropped > 0) {
    text += fmt::format("- {} later events found no room in the trace\n", file.trace.dropped);
  }
  text += "\n";
  text += head({"device", "stage", "forward", "backward", "update", "wait", "other",
                "communication beside"});
  for (const DeviceTime& device : report.devices) {
    const auto spent = [&](TraceCategory category) {
      return device.spent[static_cast<size_t>(category)];
    };
    const int64_t wait = spent(TraceCategory::wait);
    text +=
        row({device_text(device.device), std::to_string(device.device.stage),
             share(spent(TraceCategory::forward), span),
             share(spent(TraceCategory::backward), span), share(spent(TraceCategory::update), span),
             share(wait, span), share(std::max<int64_t>(0, nanoseconds - device.busy - wait), span),
             share(spent(TraceCategory::communication), span)});
  }
  text += "\n";
  return text + describe_waits(report);
}

}  // namespace millrace
