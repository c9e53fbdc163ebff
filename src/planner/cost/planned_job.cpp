#include "planner/cost/planned_job.h"

#include <fmt/format.h>

#include <numeric>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "parallel/partition.h"

namespace millrace {
namespace {

std::vector<int> backbone_of(const NetworkWork& network) {
  std::vector<int> backbone;
  for (size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i].backbone) backbone.push_back(static_cast<int>(i));
  }
  return backbone;
}

Placement placement_of(const PlannedStage& stage, int devices_per_machine) {
  Placement placement;
  for (const int device : stage.devices) {
    placement.devices.push_back({device / devices_per_machine, device % devices_per_machine});
  }
  return placement;
}

}  // namespace

ScheduleKind schedule_kind(PipelineOrder order) {
  switch (order) {
    case PipelineOrder::gpipe:
      return ScheduleKind::gpipe;
    case PipelineOrder::flush:
      return ScheduleKind::one_f_one_b_flush;
    case PipelineOrder::one_by_one:
      return ScheduleKind::one_f_one_b;
    case PipelineOrder::stale:
      return ScheduleKind::ssp;
    case PipelineOrder::two_copies:
      return ScheduleKind::two_bw;
  }
  throw std::logic_error("unknown order");
}

PipelineOrder order_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return PipelineOrder::gpipe;
    case ScheduleKind::one_f_one_b:
      return PipelineOrder::one_by_one;
    case ScheduleKind::ssp:
      return PipelineOrder::stale;
    case ScheduleKind::two_bw:
      return PipelineOrder::two_copies;
    default:
      return PipelineOrder::flush;
  }
}

std::string_view name_of(PipelineOrder order) { return name_of(schedule_kind(order)); }

int PlannedJob::devices() const {
  std::set<int> all;
  for (const PlannedStage& stage : stages) all.insert(stage.devices.begin(), stage.devices.end());
  return static_cast<int>(all.size());
}

double PlannedJob::samples_per_step() const { return round_robin ? batch : batch * devices(); }

std::vector<std::vector<int>> devices_on(const std::vector<Placement>& stages, int machines,
                                         int devices_per_machine, std::string_view flag) {
  std::vector<std::vector<int>> result;
  for (const Placement& placement : stages) {
    result.emplace_back();
    for (const DeviceId& id : placement.devices) {
      if (id.node >= machines || id.device >= devices_per_machine) {
        fail_input("{} names device {}, but there are {} machines of {} devices, counted from 0.",
                   flag, to_string(id), machines, devices_per_machine);
      }
      result.back().push_back(id.node * devices_per_machine + id.device);
    }
  }
  return result;
}

std::string format_stages(const std::vector<PlannedStage>& stages, int devices_per_machine) {
  std::vector<Placement> placements;
  for (const PlannedStage& stage : stages) {
    placements.push_back(placement_of(stage, devices_per_machine));
  }
  return to_string(placements);
}

Plan plan_of(const NetworkWork& network, const PlannedJob& job, int devices_per_machine) {
  Plan plan;
  plan.stages.clear();
  for (const PlannedStage& stage : job.stages) {
    plan.stages.push_back(placement_of(stage, devices_per_machine));
    if (plan.stages.size() < job.stages.size()) {
      plan.cut_after.push_back(network.layers.at(stage.end - 1).name);
    }
  }
  plan.round_robin = job.round_robin;
  plan.share_optimizer = job.share_optimizer;
  plan.schedule = schedule_kind(job.order);
  plan.static_scheduling = job.fixed_order;
  plan.micro_batches = job.micro_batches;
  return plan;
}

std::vector<int> cut_by_operators(const NetworkWork& network, const std::vector<int64_t>& shares,
                                  std::string_view flag) {
  const std::vector<int> counted = backbone_of(network);
  const auto count = static_cast<int64_t>(counted.size());
  const auto total = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  std::vector<int> ends;
  int64_t sum = 0;
  for (size_t stage = 0; stage + 1 < shares.size(); ++stage) {
    sum += shares[stage];
    const auto index = static_cast<size_t>(count * sum / total);
    const int end = index == 0 ? 0 : counted.at(index);
    if (end <= (ends.empty() ? 0 : ends.back())) {
      fail_input("{} gives stage {} no operator; the network has {} to share out.", flag, stage,
                 count);
    }
    ends.push_back(end);
  }
  ends.push_back(static_cast<int>(network.layers.size()));
  return ends;
}

std::vector<int> cut_after(const NetworkWork& network, const std::vector<std::string>& names,
                           std::string_view flag) {
  std::vector<int> ends;
  for (const std::string& name : names) {
    int end = 0;
    for (size_t i = 0; i < network.layers.size(); ++i) {
      const std::string& layer = network.layers[i].name;
      if (layer == name || layer.starts_with(name + ".")) end = static_cast<int>(i) + 1;
    }
    if (end == 0) fail_input("{} names '{}', which is no layer of the network.", flag, name);
    if (end <= (ends.empty() ? 0 : ends.back()) || end == std::ssize(network.layers)) {
      fail_input("{} names '{}', behind which no stage can end; name layers in order.", flag, name);
    }
    ends.push_back(end);
  }
  ends.push_back(static_cast<int>(network.layers.size()));
  return ends;
}

}  // namespace millrace
