#include "planner/cost/prediction.h"

#include <algorithm>
#include <set>

#include "planner/cost/memory_needs.h"

namespace millrace::planner {
namespace {

// Seconds in which the machines of the job decode the images of a step.
double reading_seconds(const PlannedJob& job, const simulate::Cluster& cluster,
                       const SoftwareConstants& software) {
  if (!job.real_data || cluster.host_cores == 0) return 0;
  std::set<int> machines;
  for (const PlannedStage& stage : job.stages) {
    for (const int device : stage.devices) machines.insert(device / cluster.devices_per_machine);
  }
  const double rate =
      static_cast<double>(machines.size()) * cluster.host_cores * software.loader_rate;
  return job.samples_per_step() / rate;
}

}  // namespace

Prediction predict(const CostContext& context, const PlannedJob& job) {
  const simulate::Cluster& cluster = context.cluster;
  Prediction prediction;
  const simulate::Fabric fabric(cluster);
  for (int stage = 0; stage < static_cast<int>(job.stages.size()); ++stage) {
    prediction.costs.push_back(stage_cost(context, job, stage));
  }
  prediction.simulation = simulation_of(context, job, fabric, prediction.costs);
  prediction.result = simulate::simulate(prediction.simulation.input);
  const double pace = pace_of(job, prediction.simulation, prediction.result);
  const double reading = reading_seconds(job, cluster, context.software);
  prediction.seconds_per_step = std::max(pace, reading);
  prediction.samples_per_second = job.samples_per_step() / prediction.seconds_per_step;
  prediction.epoch_seconds = kImagesOfEpoch / prediction.samples_per_second;
  prediction.bubble = simulate::bubble_of(prediction.simulation, prediction.result);
  prediction.limited_by = reading > pace ? "reading images" : "computing and communication";
  MemoryNeeds needs = memory_needs(context, job);
  prediction.reason = why_not(needs, cluster, cluster.device.memory_bytes);
  prediction.fits = prediction.reason.empty();
  prediction.memory = std::move(needs.stages);
  prediction.device_memory = std::move(needs.devices);
  prediction.host_memory = needs.host;
  return prediction;
}

}  // namespace millrace::planner
