// What a planned job takes of the memory of devices and hosts, and whether that is there.
#pragma once

#include <string>
#include <vector>

#include "planner/cost/cost_context.h"
#include "planner/cost/stage_cost.h"

namespace millrace::planner {

struct MemoryNeeds {
  std::vector<StageMemory> stages;  // of a device of each stage
  std::vector<double> devices;      // of a device of each stage, stages that share it added up
  // Of the host that holds the most: its process and, where devices compute in its memory, these.
  double host = 0;

  size_t fullest() const;  // stage
  double most() const { return devices.at(fullest()); }
};

MemoryNeeds memory_needs(const CostContext& context, const PlannedJob& job);

// Why that does not fit, in one sentence with the numbers; empty: it fits. `limit`: bytes of a
// device.
std::string why_not(const MemoryNeeds& needs, const simulate::Cluster& cluster, double limit);

}  // namespace millrace::planner
