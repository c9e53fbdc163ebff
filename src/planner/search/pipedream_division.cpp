#include "planner/search/pipedream_division.h"

#include <fmt/format.h>

#include <numeric>

#include "planner/pipedream.h"
#include "planner/simulate/fabric.h"

namespace millrace {
namespace {

constexpr int kMostDivided = 32;
constexpr size_t kMostLayers = 600;
constexpr double kMilliseconds = 1000;

double milliseconds(const std::vector<OperatorWork>& works, const PlannedJob& job,
                    const Cluster& cluster, const CostConstants& constants,
                    const SoftwareConstants& software) {
  double sum = 0;
  for (const OperatorWork& work : works) {
    sum += seconds_of(work, job.batch, cluster.device, job.precision, constants.operators);
  }
  return sum * software.slowness * kMilliseconds;
}

// The layers as a chain, for a mini-batch of one device's samples.
Profile to_profile(const NetworkWork& network, const PlannedJob& job, const Cluster& cluster,
                   const CostConstants& constants, const SoftwareConstants& software) {
  Profile profile;
  const double size = job.boundary_size();
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const LayerWork& layer = network.layers[i];
    ProfileNode node;
    node.id = fmt::format("node{}", i);
    node.description = layer.name;
    node.forward_milliseconds = milliseconds(layer.forward, job, cluster, constants, software);
    node.backward_milliseconds = milliseconds(layer.backward, job, cluster, constants, software);
    node.activation_bytes = layer.cut.at(job.batch) * size;
    node.parameter_bytes = layer.parameters * 4;
    profile.nodes.push_back(std::move(node));
    if (i > 0) profile.edges.emplace_back(static_cast<int>(i) - 1, static_cast<int>(i));
  }
  return profile;
}

}  // namespace

std::vector<PlannedStage> pipedream_division(const NetworkWork& network, const PlannedJob& job,
                                             int devices, const Cluster& cluster,
                                             const CostConstants& constants,
                                             const SoftwareConstants& software) {
  if (devices < 2 || devices > kMostDivided || network.layers.size() > kMostLayers) return {};
  std::vector<int> all(static_cast<size_t>(devices));
  std::iota(all.begin(), all.end(), 0);
  PipedreamOptions options;
  const double bandwidth = Fabric(cluster).ring(all).rate * software.collective_efficiency;
  options.levels = {{devices, bandwidth}};
  options.activation_ratio = 1;
  const PipedreamPlan plan =
      optimize_pipedream(to_profile(network, job, cluster, constants, software), options);
  std::vector<PlannedStage> stages;
  int device = 0, layer = 0;
  for (const PipelineStage& part : plan.stages) {
    PlannedStage stage;
    for (int i = 0; i < part.replicas; ++i) stage.devices.push_back(device++);
    stage.begin = layer;
    layer += static_cast<int>(part.nodes.size());
    stage.end = layer;
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace millrace
