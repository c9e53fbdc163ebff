#include "report/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"

namespace millrace::report {
namespace {

constexpr const char* kNone = "–";

std::string value(const std::optional<double>& number) {
  if (!number) return kNone;
  const double size = std::abs(*number);
  return size >= 1e4 && size < 1e12 ? fmt::format("{:.0f}", *number)
                                    : fmt::format("{:.4g}", *number);
}

std::string size_text(double bytes) {
  if (!(bytes >= 0 && bytes < 9e18)) return kNone;
  return format_bytes(static_cast<uint64_t>(bytes));
}

std::string bytes_text(const Json& bytes) {
  return bytes.is_number_integer() ? size_text(bytes.get<double>()) : kNone;
}

std::string share(int64_t part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * static_cast<double>(part) / whole) : kNone;
}

std::string or_none(const std::string& text) { return text.empty() ? kNone : text; }

// Stage by stage, or once where all are alike.
std::string memory_text(const RunFacts& run) {
  std::vector<std::string> sizes;
  for (const double bytes : run.stage_memory) sizes.push_back(size_text(bytes));
  const bool alike = std::all_of(sizes.begin(), sizes.end(),
                                 [&](const std::string& size) { return size == sizes.front(); });
  if (alike && !sizes.empty()) sizes.resize(1);
  std::string text = fmt::format("{}", fmt::join(sizes, " / "));
  if (!run.fits) text += " (does not fit)";
  return or_none(text);
}

std::string stages_text(const RunFacts& run) {
  std::string text = run.placement;
  if (!run.cuts.empty()) text += " as " + run.cuts;
  return or_none(text);
}

// Without the directories of a path: "idx:/data/mnist" is "idx:mnist".
std::string data_text(const std::string& data) {
  const size_t colon = data.find(':'), slash = data.find_last_of('/');
  if (colon == std::string::npos || slash == std::string::npos || slash < colon) return data;
  if (slash + 1 == data.size()) return data_text(data.substr(0, slash));
  return data.substr(0, colon + 1) + data.substr(slash + 1);
}

void add_flat(const std::string& prefix, const Json& json, Table& table) {
  for (const auto& [key, entry] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + " " + key;
    if (entry.is_object()) {
      add_flat(name, entry, table);
    } else if (entry.empty()) {
      continue;
    } else if (key.ends_with("_bytes") && entry.is_number()) {
      table.rows.push_back({name.substr(0, name.size() - 6), bytes_text(entry)});
    } else {
      table.rows.push_back(
          {name, entry.is_string() ? entry.get<std::string>()
                                   : entry.dump(-1, ' ', false, Json::error_handler_t::replace)});
    }
  }
}

}  // namespace

const RunFacts* base_of(const RunFacts& run, const std::vector<RunFacts>& runs) {
  const auto rank = [](const RunFacts& facts) {
    return std::tuple(facts.devices, !facts.samples_per_second, facts.precision != "fp32");
  };
  const RunFacts* base = nullptr;
  for (const RunFacts& other : runs) {
    if (other.model != run.model || !other.rate()) continue;
    if (base == nullptr || rank(other) < rank(*base)) base = &other;
  }
  return base;
}

Table run_table(const std::vector<RunFacts>& runs) {
  Table table;
  table.caption = "Runs";
  table.head = {"run",       "model",   "data",     "precision",       "devices",
                "batch",     "stages",  "schedule", "memory by stage", "s/step",
                "samples/s", "s/epoch", "speed-up"};
  double most = 0;
  for (const RunFacts& run : runs) most = std::max(most, run.rate().value_or(0));
  for (const RunFacts& run : runs) {
    const std::optional<double> rate = run.rate();
    const bool measured = run.samples_per_second.has_value();
    const RunFacts* base = base_of(run, runs);
    std::string schedule = run.schedule;
    if (run.micro_batches.value_or(1) > 1)
      schedule += fmt::format("\u00a0×\u00a0{:g}", *run.micro_batches);
    table.rows.push_back(
        {run.name, or_none(run.model), or_none(data_text(run.data)), or_none(run.precision),
         run.devices > 0 ? std::to_string(run.devices) : kNone, value(run.batch), stages_text(run),
         or_none(schedule), memory_text(run),
         value(measured ? run.seconds_per_step : run.predicted_seconds),
         value(rate) + (rate && !measured ? " predicted" : ""),
         value(rate && *rate > 0 ? std::optional(run.epoch_images / *rate) : std::nullopt),
         rate && base != nullptr && *base->rate() > 0 ? fmt::format("{:.2f}", *rate / *base->rate())
                                                      : kNone});
    table.bar_shares.push_back(rate && most > 0 ? *rate / most : 0);
  }
  if (runs.size() > 1) table.bar_column = 10;
  return table;
}

std::vector<std::string> memory_parts() {
  return {"weights",   "gradients",     "optimizer", "activations",
          "workspace", "communication", "context"};
}

Table memory_table(const Json& root) {
  Table table;
  table.caption = "Memory of each device";
  table.head = {"device", "stage", "peak"};
  const Json devices = json_member(root, "devices");
  std::vector<std::string> parts = memory_parts();
  const bool has_context = std::any_of(devices.begin(), devices.end(), [](const Json& device) {
    return !json_member(json_member(device, "breakdown"), "context").is_null();
  });
  if (!has_context) parts.pop_back();
  table.head.insert(table.head.end(), parts.begin(), parts.end());
  for (const Json& device : devices) {
    std::vector<std::string> cells = {or_none(json_text(device, "id")),
                                      or_none(json_text(device, "stage")),
                                      bytes_text(json_member(device, "peak_bytes"))};
    const Json breakdown = json_member(device, "breakdown");
    for (const std::string& part : parts) {
      cells.push_back(bytes_text(json_member(breakdown, part.c_str())));
    }
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Table prediction_table(const Run& run, const RunFacts& facts) {
  Table table;
  table.caption = "Predicted against measured";
  table.head = {"", "predicted", "measured", "error"};
  const auto add = [&](const std::string& name, std::optional<double> predicted,
                       std::optional<double> measured) {
    if (!predicted || !measured) return;
    table.rows.push_back(
        {name, value(predicted), value(measured), error_text(*predicted, *measured)});
  };
  add("seconds per step", facts.predicted_seconds, facts.seconds_per_step);
  add("samples per second", facts.predicted_rate, facts.samples_per_second);
  if (facts.predicted_bubble && facts.bubble) {
    table.rows.push_back(
        {"idle share of all time", fmt::format("{:.1f} %", 100 * *facts.predicted_bubble),
         fmt::format("{:.1f} %", 100 * *facts.bubble),
         fmt::format("{:+.1f} points", 100 * (*facts.predicted_bubble - *facts.bubble))});
  }
  if (facts.predicted_process_memory && facts.process_memory) {
    table.rows.push_back({"memory of the process", size_text(*facts.predicted_process_memory),
                          size_text(*facts.process_memory),
                          error_text(*facts.predicted_process_memory, *facts.process_memory)});
  }
  const RunFile* plan = run.find(RunFile::Kind::plan);
  const RunFile* summary = run.find(RunFile::Kind::summary);
  if (plan == nullptr) return table;
  const auto key = [](const Json& device) {
    return fmt::format("device {}, stage {}", json_text(device, "id"), json_text(device, "stage"));
  };
  std::map<std::string, double> measured;
  if (summary != nullptr) {
    for (const Json& device : json_member(summary->json, "devices")) {
      if (const auto peak = json_number(device, "peak_bytes")) measured[key(device)] = *peak;
    }
  }
  for (const Json& device : json_member(plan->json, "devices")) {
    const auto peak = json_number(device, "peak_bytes");
    auto found = json_number(device, "measured_peak_bytes");
    if (measured.contains(key(device))) found = measured[key(device)];
    if (!peak || !found) continue;
    table.rows.push_back({"memory of " + key(device), size_text(*peak), size_text(*found),
                          error_text(*peak, *found)});
  }
  return table;
}

Table time_table(const TimeReport& report) {
  const int64_t nanoseconds = report.window.end - report.window.begin;
  const auto span = static_cast<double>(nanoseconds);
  Table table;
  table.caption = "Where each device's time went";
  table.head = {"device", "stage", "forward", "backward",
                "update", "wait",  "other",   "communication beside"};
  for (const DeviceTime& device : report.devices) {
    const auto spent = [&](runtime::TraceCategory category) {
      return device.spent[static_cast<size_t>(category)];
    };
    const int64_t wait = spent(runtime::TraceCategory::wait);
    table.rows.push_back({fmt::format("{}:{}", device.device.node, device.device.device),
                          std::to_string(device.device.stage),
                          share(spent(runtime::TraceCategory::forward), span),
                          share(spent(runtime::TraceCategory::backward), span),
                          share(spent(runtime::TraceCategory::update), span), share(wait, span),
                          share(std::max<int64_t>(0, nanoseconds - device.busy - wait), span),
                          share(spent(runtime::TraceCategory::communication), span)});
  }
  return table;
}

Table wait_table(const TimeReport& report) {
  std::map<std::string, int64_t> causes;
  for (const DeviceTime& device : report.devices) {
    for (const auto& [cause, time] : device.waits) causes[cause] += time;
  }
  const double span = static_cast<double>(report.window.end - report.window.begin) *
                      static_cast<double>(report.devices.size());
  Table table;
  table.caption = "What devices waited for";
  table.head = {"wait for", "seconds, all devices", "of all time"};
  for (const auto& [cause, time] : causes) {
    table.rows.push_back(
        {cause, fmt::format("{:.4f}", static_cast<double>(time) / 1e9), share(time, span)});
  }
  return table;
}

Table evaluation_table(const std::vector<Evaluation>& evaluations) {
  Table table;
  table.caption = "Evaluations";
  table.head = {"step", "samples"};
  for (const Evaluation& evaluation : evaluations) {
    for (const auto& [name, figure] : evaluation.figures) {
      if (std::find(table.head.begin(), table.head.end(), name) == table.head.end()) {
        table.head.push_back(name);
      }
    }
  }
  for (const Evaluation& evaluation : evaluations) {
    std::vector<std::string> row = {fmt::format("{:g}", evaluation.step),
                                    value(evaluation.samples)};
    for (size_t i = 2; i < table.head.size(); ++i) {
      const std::optional<double> figure = evaluation.figure(table.head[i]);
      const bool is_share = !table.head[i].ends_with("loss") && table.head[i] != "pairs";
      row.push_back(figure && is_share ? fmt::format("{:.2f} %", 100 * *figure) : value(figure));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table settings_table(const Json& root) {
  Table table;
  table.caption = "Everything the job was told";
  table.head = {"setting", "value"};
  Json kept = Json::object();
  for (const char* key : {"model",
                          "data",
                          "image",
                          "classes",
                          "global_batch",
                          "seed",
                          "precision",
                          "arithmetic",
                          "communication_dtype",
                          "schedule",
                          "threads_per_device",
                          "steps",
                          "first_step",
                          "total_steps",
                          "finished",
                          "skipped_records",
                          "wait_seconds",
                          "loss_scale",
                          "plan",
                          "device_memory_bytes",
                          "reorders",
                          "recomputed",
                          "in_place"}) {
    const Json entry = json_member(root, key);
    if (!entry.is_null()) kept[key] = entry;
  }
  add_flat("", kept, table);
  return table;
}

Table environment_table(const Json& environment) {
  Table table;
  table.caption = "Environment";
  table.head = {"", "value"};
  if (environment.is_object()) add_flat("", environment, table);
  return table;
}

}  // namespace millrace::report
