#include "planner/cost/memory_needs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory.h"
#include "base/text.h"

namespace millrace::planner {
namespace {

std::string bytes_text(double bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

// Stages that share devices share one context and take turns with one workspace.
double bytes_of_device(const PlannedJob& job, size_t stage,
                       const std::vector<StageMemory>& memory) {
  double sum = 0, workspace = 0, context = 0;
  for (size_t other = 0; other < job.stages.size(); ++other) {
    if (job.stages[other].devices != job.stages[stage].devices) continue;
    sum += memory[other].total() - memory[other].workspace - memory[other].context;
    workspace = std::max(workspace, memory[other].workspace);
    context = std::max(context, memory[other].context);
  }
  return sum + workspace + context;
}

double bytes_of_host(const PlannedJob& job, const simulate::Cluster& cluster,
                     const std::vector<double>& devices) {
  constexpr auto kProcess = static_cast<double>(kProcessBytes);
  if (!cluster.devices_in_host_memory) return kProcess;
  std::vector<double> hosts(static_cast<size_t>(cluster.machines), kProcess);
  for (size_t stage = 0; stage < job.stages.size(); ++stage) {
    const std::vector<int>& own = job.stages[stage].devices;
    const auto same = [&](const PlannedStage& other) { return other.devices == own; };
    const auto first = job.stages.begin();
    if (std::any_of(first, first + static_cast<std::ptrdiff_t>(stage), same)) continue;
    for (const int device : own) {
      hosts.at(static_cast<size_t>(device / cluster.devices_per_machine)) += devices[stage];
    }
  }
  return *std::max_element(hosts.begin(), hosts.end());
}

}  // namespace

size_t MemoryNeeds::fullest() const {
  return static_cast<size_t>(std::max_element(devices.begin(), devices.end()) - devices.begin());
}

MemoryNeeds memory_needs(const CostContext& context, const PlannedJob& job) {
  MemoryNeeds needs;
  const parallel::Schedule schedule = whole_schedule_of(job);
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto row = static_cast<size_t>(schedule.row_of(stage, 0));
    needs.stages.push_back(stage_memory(context, job, stage, schedule.rows[row]));
  }
  for (size_t stage = 0; stage < job.stages.size(); ++stage) {
    needs.devices.push_back(bytes_of_device(job, stage, needs.stages));
  }
  needs.host = bytes_of_host(job, context.cluster, needs.devices);
  return needs;
}

std::string why_not(const MemoryNeeds& needs, const simulate::Cluster& cluster, double limit) {
  if (needs.most() > limit) {
    return fmt::format(
        "Stage {} needs {} on each device, which has {}; use a smaller ‹batch›, more stages or "
        "recompute.",
        needs.fullest(), bytes_text(needs.most()), bytes_text(limit));
  }
  if (cluster.host_memory_bytes > 0 && needs.host > cluster.host_memory_bytes) {
    return fmt::format(
        "The devices of a host and its process need {} together, and a host has {}; use a smaller "
        "‹batch›, fewer devices or recompute.",
        bytes_text(needs.host), bytes_text(cluster.host_memory_bytes));
  }
  return {};
}

}  // namespace millrace::planner
