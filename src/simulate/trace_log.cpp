#include <algorithm>
#include <cmath>
#include <map>

#include "simulate/job_simulation.h"

namespace millrace::simulate {
namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

runtime::TraceCategory category_of(const std::string& name) {
  for (int i = 0; i < runtime::kTraceCategories; ++i) {
    const auto category = static_cast<runtime::TraceCategory>(i);
    if (runtime::name_of(category) == name) return category;
  }
  return runtime::TraceCategory::data;
}

bool is_message_copy(const SimulationItem& item) {
  return item.category == "activations" || item.category == "gradients" || item.category == "room";
}

// Why a device stood still before it began this item of a stage.
std::string cause_before(const SimulationItem& item, int stage) {
  if (is_message_copy(item)) return item.category;
  if (item.category == "forward" && stage > 0) return "activations";
  return item.category == "data" || item.category == "forward" ? "step" : "gradients";
}

}  // namespace

runtime::TraceLog trace_log(const JobSimulation& simulation, const SimulationResult& result) {
  runtime::TraceLog log;
  log.devices = simulation.devices;
  std::map<int, int64_t> ended;  // by lane
  for (size_t i = 0; i < simulation.input.items.size(); ++i) {
    const SimulationItem& item = simulation.input.items[i];
    const int device = simulation.trace_device[i];
    if (device < 0) continue;
    runtime::TraceEvent event = {device,
                                 category_of(item.category),
                                 item.name,
                                 simulation.micro_batch[i],
                                 nanoseconds(result.start[i]),
                                 nanoseconds(result.end[i])};
    const bool computes = item.lane >= 0 && item.category != "communication";
    if (computes) {
      int64_t& before = ended[item.lane];
      if (event.begin > before) {
        log.events.push_back({device, runtime::TraceCategory::wait,
                              cause_before(item, log.devices[static_cast<size_t>(device)].stage),
                              event.micro_batch, before, event.begin});
      }
      before = std::max(before, event.end);
    }
    if (event.end > event.begin && !is_message_copy(item)) log.events.push_back(event);
  }
  return log;
}

}  // namespace millrace::simulate
