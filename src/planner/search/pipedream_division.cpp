#include "planner/search/pipedream_division.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "simulate/fabric.h"

namespace millrace::planner {
namespace {

constexpr int kMostDivided = 32;
constexpr size_t kMostLayers = 600;
constexpr double kMostChoices = 1e9;  // layers³ · workers² of inner levels
constexpr double kMillisecondsPerSecond = 1000;

std::vector<int> first_devices(int devices) {
  std::vector<int> all(static_cast<size_t>(devices));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

double reached_rate(const CostContext& context, int devices) {
  return simulate::Fabric(context.cluster).ring(first_devices(devices)).rate *
         context.software.collective_efficiency;
}

// The layers as a chain, for a mini-batch of one device's samples.
Profile to_profile(const CostContext& context, const PlannedJob& job) {
  const NetworkWork& network = context.network;
  Profile profile;
  for (size_t i = 0; i < network.layers.size(); ++i) {
    const LayerWork& layer = network.layers[i];
    const PassSeconds seconds = seconds_of(layer, job.batch, context.cluster.device, job.precision,
                                           context.constants.operators, context.software);
    ProfileNode node;
    node.id = fmt::format("node{}", i);
    node.description = layer.name;
    node.forward_milliseconds = seconds.forward * kMillisecondsPerSecond;
    node.backward_milliseconds = seconds.backward * kMillisecondsPerSecond;
    node.activation_bytes = layer.cut.at(job.batch) * job.boundary_size();
    node.parameter_bytes = layer.parameters * 4;
    profile.nodes.push_back(std::move(node));
    if (i > 0) profile.edges.emplace_back(static_cast<int>(i) - 1, static_cast<int>(i));
  }
  return profile;
}

// Ends of at most `parts` groups of neighbouring layers that take about the same time; each group
// ends where the fewest bytes cross.
std::vector<int> group_ends(const Profile& chain, size_t parts) {
  const auto count = static_cast<int>(chain.nodes.size());
  std::vector<int> ends;
  if (chain.nodes.size() <= parts) {
    ends = first_devices(count + 1);
    ends.erase(ends.begin());
    return ends;
  }
  const auto milliseconds = [&](int i) {
    return chain.nodes[i].forward_milliseconds + chain.nodes[i].backward_milliseconds;
  };
  double total = 0, sum = 0;
  for (int i = 0; i < count; ++i) total += milliseconds(i);
  int narrowest = -1;
  size_t group = 1;
  for (int i = 0; i + 1 < count; ++i) {
    sum += milliseconds(i);
    if (narrowest < 0 ||
        chain.nodes[i].activation_bytes <= chain.nodes[narrowest].activation_bytes) {
      narrowest = i;
    }
    if (sum < total * static_cast<double>(group) / static_cast<double>(parts)) continue;
    ends.push_back(narrowest + 1);
    narrowest = -1;
    while (group < parts &&
           sum >= total * static_cast<double>(group) / static_cast<double>(parts)) {
      ++group;
    }
  }
  ends.push_back(count);
  return ends;
}

Profile grouped(const Profile& chain, const std::vector<int>& ends) {
  Profile profile;
  int begin = 0;
  for (const int end : ends) {
    ProfileNode node = chain.nodes[end - 1];
    for (int i = begin; i + 1 < end; ++i) {
      node.forward_milliseconds += chain.nodes[i].forward_milliseconds;
      node.backward_milliseconds += chain.nodes[i].backward_milliseconds;
      node.parameter_bytes += chain.nodes[i].parameter_bytes;
    }
    const auto place = static_cast<int>(profile.nodes.size());
    if (place > 0) profile.edges.emplace_back(place - 1, place);
    profile.nodes.push_back(std::move(node));
    begin = end;
  }
  return profile;
}

Division divide(const Profile& chain, const std::vector<Level>& levels,
                const DivisionRules& rules) {
  size_t parts = chain.nodes.size();
  if (levels.size() > 1) {
    const double workers = std::max(2, levels.front().workers);
    parts = std::min(parts, static_cast<size_t>(std::cbrt(kMostChoices / (workers * workers))));
  }
  const std::vector<int> ends = group_ends(chain, parts);
  PipedreamOptions options;
  options.levels = levels;
  options.activation_ratio = 1;
  options.straight = rules.straight;
  options.fewer = rules.fewer;
  Division stages =
      place_division(optimize_pipedream(grouped(chain, ends), options).stages, levels);
  for (PlannedStage& stage : stages) {
    stage.begin = stage.begin == 0 ? 0 : ends[stage.begin - 1];
    stage.end = ends[stage.end - 1];
  }
  return stages;
}

// Workers of a level that do the same, in the order in which they take mini-batches.
struct Workers {
  const std::vector<Level>& levels;
  Division& result;

  void place(const std::vector<PipelineStage>& stages, size_t level,
             const std::vector<int>& first) {
    int size = 1;
    for (size_t i = 0; i < level; ++i) size *= levels[i].workers;
    int used = 0;
    for (const PipelineStage& stage : stages) {
      std::vector<int> members;
      for (int i = 0; i < stage.replicas; ++i) {
        for (const int begin : first) members.push_back(begin + (used + i) * size);
      }
      used += stage.replicas;
      if (level > 0) {
        place(stage.parts, level - 1, members);
        continue;
      }
      const int begin = result.empty() ? 0 : result.back().end;
      result.push_back({std::move(members), begin, begin + static_cast<int>(stage.nodes.size())});
    }
  }
};

}  // namespace

std::vector<Level> levels_of(const CostContext& context, int devices) {
  const int inside = context.cluster.devices_per_machine;
  if (devices <= inside || devices % inside != 0 || inside < 2) {
    return {{devices, reached_rate(context, devices)}};
  }
  return {{inside, reached_rate(context, inside)},
          {devices / inside,
           context.cluster.network.bandwidth * context.software.collective_efficiency}};
}

Division place_division(const std::vector<PipelineStage>& stages,
                        const std::vector<Level>& levels) {
  Division result;
  if (!stages.empty()) Workers{levels, result}.place(stages, levels.size() - 1, {0});
  return result;
}

std::vector<Division> pipedream_divisions(const CostContext& context, const PlannedJob& job,
                                          const DivisionRules& rules) {
  const int devices = rules.devices;
  if (devices < 2 || devices > kMostDivided) return {};
  if (context.network.layers.size() > kMostLayers) return {};
  const Profile chain = to_profile(context, job);
  std::vector<Division> divisions;
  const std::vector<Level> levels = levels_of(context, devices);
  divisions.push_back(divide(chain, levels, rules));
  if (levels.size() > 1) {
    divisions.push_back(divide(chain, {{devices, reached_rate(context, devices)}}, rules));
  }
  std::erase_if(divisions, [](const Division& division) { return division.empty(); });
  return divisions;
}

}  // namespace millrace::planner
