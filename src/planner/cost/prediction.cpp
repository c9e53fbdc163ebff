#include "planner/cost/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace millrace {
namespace {

// Seconds in which the machines of the job decode the images of a step.
double reading_seconds(const PlannedJob& job, const Cluster& cluster,
                       const SoftwareConstants& software) {
  if (!job.real_data) return 0;
  std::set<int> machines;
  for (const PlannedStage& stage : job.stages) {
    for (const int device : stage.devices) machines.insert(device / cluster.devices_per_machine);
  }
  const double rate =
      static_cast<double>(machines.size()) * cluster.host_cores * software.loader_rate;
  return job.samples_per_step() / rate;
}

// Stages that share devices share one context and take turns with one workspace.
double memory_of_devices(const PlannedJob& job, size_t stage,
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

void judge_memory(const PlannedJob& job, const Cluster& cluster, Prediction& prediction) {
  for (size_t stage = 0; stage < job.stages.size(); ++stage) {
    const double sum = memory_of_devices(job, stage, prediction.memory);
    prediction.device_memory.push_back(sum);
    if (sum <= cluster.device.memory_bytes || !prediction.fits) continue;
    prediction.fits = false;
    prediction.reason = fmt::format(
        "Stage {} needs {} on each device, which has {}; use a smaller --batch, more stages or "
        "recompute.",
        stage, format_bytes(static_cast<uint64_t>(sum)),
        format_bytes(static_cast<uint64_t>(cluster.device.memory_bytes)));
  }
}

}  // namespace

Prediction predict(const NetworkWork& network, const PlannedJob& job, const Cluster& cluster,
                   const CostConstants& constants, const SoftwareConstants& software) {
  Prediction prediction;
  const Fabric fabric(cluster);
  prediction.simulation = simulate_steps({network, job, cluster, fabric, constants, software});
  prediction.result = simulate(prediction.simulation.input);
  const double pace = prediction.simulation.pace(prediction.result);
  const double reading = reading_seconds(job, cluster, software);
  prediction.seconds_per_step = std::max(pace, reading);
  prediction.samples_per_second = job.samples_per_step() / prediction.seconds_per_step;
  prediction.epoch_seconds = kImagesOfEpoch / prediction.samples_per_second;
  double busy = 0;
  int lanes = 0;
  const auto& all = prediction.simulation.input.lanes;
  for (size_t lane = 0; lane < all.size(); ++lane) {
    if (all[lane].name != "compute") continue;
    busy += 1 - prediction.result.idle_share(static_cast<int>(lane));
    ++lanes;
  }
  prediction.bubble = lanes > 0 ? 1 - busy / lanes : 0;
  prediction.limited_by = reading > pace ? "reading images" : "computing and communication";
  for (size_t stage = 0; stage < job.stages.size(); ++stage) {
    const int index = static_cast<int>(stage);
    prediction.costs.push_back(stage_cost(network, job, index, cluster, constants, software));
    prediction.memory.push_back(stage_memory(network, job, index, cluster, constants, software));
  }
  judge_memory(job, cluster, prediction);
  return prediction;
}

}  // namespace millrace
