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
                    const CostContext& context) {
  double sum = 0;
  for (const OperatorWork& work : works) {
    sum += seconds_of(work, job.batch, context.cluster.device, job.precision,
                      context.constants.operators);
  }
  return sum * context.software.slowness * kMilliseconds;
}

// The layers as a chain, for a mini-batch of one device's samples.
Profile to_profile(const CostContext& context, const PlannedJob& job) {
  const NetworkWork& network = context.network;
  Profile profile;
  const double size = job.boundary_size();
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const LayerWork& layer = network.layers[i];
    ProfileNode node;
    node.id = fmt::format("node{}", i);
    node.description = layer.name;
    node.forward_milliseconds = milliseconds(layer.forward, job, context);
    node.backward_milliseconds = milliseconds(layer.backward, job, context);
    node.activation_bytes = layer.cut.at(job.batch) * size;
    node.parameter_bytes = layer.parameters * 4;
    profile.nodes.push_back(std::move(node));
    if (i > 0) profile.edges.emplace_back(static_cast<int>(i) - 1, static_cast<int>(i));
  }
  return profile;
}

}  // namespace

std::vector<PlannedStage> pipedream_division(const CostContext& context, const PlannedJob& job,
                                             int devices) {
  const size_t layers = context.network.layers.size();
  if (devices < 2 || devices > kMostDivided || layers > kMostLayers) return {};
  std::vector<int> all(static_cast<size_t>(devices));
  std::iota(all.begin(), all.end(), 0);
  PipedreamOptions options;
  const double bandwidth =
      Fabric(context.cluster).ring(all).rate * context.software.collective_efficiency;
  options.levels = {{devices, bandwidth}};
  options.activation_ratio = 1;
  const PipedreamPlan plan = optimize_pipedream(to_profile(context, job), options);
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
