#include "planner/cost/prediction.h"

#include <algorithm>
#include <set>

#include "planner/cost/memory_needs.h"

namespace millrace::planner {
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
  }
  MemoryNeeds needs = memory_needs({network, cluster, constants, software}, job);
  prediction.reason = why_not(needs, cluster, cluster.device.memory_bytes);
  prediction.fits = prediction.reason.empty();
  prediction.memory = std::move(needs.stages);
  prediction.device_memory = std::move(needs.devices);
  prediction.host_memory = needs.host;
  return prediction;
}

}  // namespace millrace::planner
