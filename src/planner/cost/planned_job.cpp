#include "planner/cost/planned_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "parallel/partition.h"

namespace millrace::planner {
namespace {

std::vector<int> backbone_of(const NetworkWork& network) {
  std::vector<int> backbone;
  for (size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i].backbone) backbone.push_back(static_cast<int>(i));
  }
  return backbone;
}

parallel::Placement placement_of(const PlannedStage& stage, int devices_per_machine) {
  parallel::Placement placement;
  for (const int device : stage.devices) {
    placement.devices.push_back({device / devices_per_machine, device % devices_per_machine});
  }
  return placement;
}

}  // namespace

int PlannedJob::devices() const {
  if (stages.size() == 1) return static_cast<int>(stages.front().devices.size());
  int last = -1;
  for (const PlannedStage& stage : stages) {
    for (const int device : stage.devices) last = std::max(last, device);
  }
  std::vector<bool> used(static_cast<size_t>(last + 1), false);
  int count = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const bool again = i > 0 && stages[i].devices == stages[0].devices;
    if (again && turns() > 0) break;  // the same ones in turn
    for (const int device : stages[i].devices) {
      if (used[static_cast<size_t>(device)]) continue;
      used[static_cast<size_t>(device)] = true;
      ++count;
    }
  }
  return count;
}

int PlannedJob::turns() const {
  size_t period = 1;
  while (period < stages.size() && stages[period].devices != stages[0].devices) ++period;
  for (size_t i = period; i < stages.size(); ++i) {
    if (stages[i].devices != stages[i % period].devices) return 0;
  }
  return static_cast<int>(period);
}

double PlannedJob::samples_per_step() const { return round_robin ? batch : batch * devices(); }

parallel::Schedule schedule_of(const PlannedJob& job, int64_t steps) {
  parallel::ScheduleRequest request;
  request.kind = job.schedule;
  request.stages = static_cast<int>(job.stages.size());
  request.micro_batches = job.micro_batches;
  request.steps = steps;
  request.round_robin = job.round_robin;
  if (job.schedule == parallel::ScheduleKind::interleaved) request.turns = job.turns();
  for (const PlannedStage& stage : job.stages) {
    if (job.round_robin) request.replicas.push_back(static_cast<int>(stage.devices.size()));
  }
  return parallel::make_schedule(request);
}

parallel::Schedule whole_schedule_of(const PlannedJob& job) {
  if (parallel::is_synchronous(job.schedule)) return schedule_of(job, 1);
  size_t rows = 0;
  for (const PlannedStage& stage : job.stages) rows += job.round_robin ? stage.devices.size() : 1;
  return schedule_of(job, 2 * static_cast<int64_t>(rows) / std::max(1, job.micro_batches) + 1);
}

std::vector<std::vector<int>> devices_on(const std::vector<parallel::Placement>& stages,
                                         int machines, int devices_per_machine,
                                         std::string_view flag) {
  std::vector<std::vector<int>> result;
  for (const parallel::Placement& placement : stages) {
    result.emplace_back();
    for (const parallel::DeviceId& id : placement.devices) {
      if (id.node >= machines || id.device >= devices_per_machine) {
        fail_input("{} names device {}, but there are {} machines of {} devices, counted from 0.",
                   flag, parallel::to_string(id), machines, devices_per_machine);
      }
      result.back().push_back(id.node * devices_per_machine + id.device);
    }
  }
  return result;
}

std::string format_stages(const std::vector<PlannedStage>& stages, int devices_per_machine) {
  std::vector<parallel::Placement> placements;
  for (const PlannedStage& stage : stages) {
    placements.push_back(placement_of(stage, devices_per_machine));
  }
  return parallel::to_string(placements);
}

parallel::Plan plan_of(const NetworkWork& network, const PlannedJob& job, int devices_per_machine) {
  parallel::Plan plan;
  plan.stages.clear();
  for (const PlannedStage& stage : job.stages) {
    plan.stages.push_back(placement_of(stage, devices_per_machine));
    if (plan.stages.size() < job.stages.size()) {
      plan.cut_after.push_back(network.layers.at(stage.end - 1).name);
    }
  }
  plan.sharding.parallelism = job.parallelism;
  plan.round_robin = job.round_robin;
  plan.share_optimizer = job.share_optimizer;
  plan.schedule = job.schedule;
  plan.static_scheduling = job.fixed_order;
  plan.micro_batches = job.micro_batches;
  return plan;
}

parallel::PlanFile plan_file_of(parallel::Plan plan, const PlannedJob& job, std::string model,
                                std::string cluster) {
  using Parallel = PlannedHead::Parallel;
  parallel::PlanFile file = {std::move(plan), job.precision, job.wire};
  file.recompute = job.recompute ? passes::RecomputePolicy::all : passes::RecomputePolicy::none;
  if (job.head.parallel != Parallel::none) {
    const auto division = static_cast<int>(job.head.parallel) - static_cast<int>(Parallel::data);
    file.head = {static_cast<graph::HeadParallel>(division), job.head.sample_rate};
  }
  // `train` counts samples per device, also where replicas take whole mini-batches.
  const double batch = job.round_robin ? job.batch / job.devices() : job.batch;
  const bool whole = batch >= 1 && batch == std::floor(batch);
  file.made_for = {std::move(model), whole ? static_cast<int64_t>(batch) : 0, std::move(cluster)};
  return file;
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

}  // namespace millrace::planner
