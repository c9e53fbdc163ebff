#include "planner/cost/profile_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "planner/profile_graph.h"

namespace millrace::planner {
namespace {

constexpr double kProfiledElementBytes = 4;
constexpr double kSecondsPerMillisecond = 1e-3;

MeasuredSeconds measured_of(const ProfileNode& node, double samples) {
  return {{0, node.forward_milliseconds * kSecondsPerMillisecond / samples},
          {0, node.backward_milliseconds * kSecondsPerMillisecond / samples},
          node.update_milliseconds * kSecondsPerMillisecond};
}

void append_nodes(const std::vector<PipelineStage>& stages, std::vector<int>& order) {
  for (const PipelineStage& stage : stages) {
    if (stage.parts.empty()) {
      order.insert(order.end(), stage.nodes.begin(), stage.nodes.end());
    } else {
      append_nodes(stage.parts, order);
    }
  }
}

// Whatever is joined to the first source, also by way of an operator that both feed.
NodeSet connected_nodes(const ProfileGraph& graph) {
  NodeSet found = graph.empty_set();
  found.insert(graph.first_source());
  for (bool grows = true; grows;) {
    grows = false;
    for (const int node : graph.order()) {
      if (!found.contains(node)) continue;
      for (const int next : graph.successors(node)) {
        if (found.contains(next)) continue;
        found.insert(next);
        found |= graph.ancestors(next);
        grows = true;
      }
    }
  }
  return found;
}

// A tensor crosses every cut between its producer and its last reader.
void set_cuts(const Profile& profile, const std::vector<int>& order, double samples,
              std::vector<LayerWork>& layers) {
  std::map<int, size_t> place;
  for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  std::vector<size_t> last_reader(order.size());
  for (size_t i = 0; i < order.size(); ++i) last_reader[i] = i;
  for (const auto& [from, to] : profile.edges) {
    const auto producer = place.find(from), reader = place.find(to);
    if (producer == place.end() || reader == place.end()) continue;
    size_t& last = last_reader[producer->second];
    last = std::max(last, reader->second);
    Linear& largest = layers[reader->second].largest;
    largest.per_sample = std::max(
        largest.per_sample, profile.nodes[from].activation_bytes / kProfiledElementBytes / samples);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t cut = i; cut < last_reader[i]; ++cut) {
      layers[cut].cut.per_sample +=
          profile.nodes[order[i]].activation_bytes / kProfiledElementBytes / samples;
    }
  }
}

}  // namespace

std::vector<int> planned_order(const Profile& profile, const std::vector<PipelineStage>& stages) {
  std::vector<int> order;
  append_nodes(stages, order);
  if (!order.empty()) return order;
  const ProfileGraph graph(profile);
  const NodeSet connected = connected_nodes(graph);
  std::copy_if(graph.order().begin(), graph.order().end(), std::back_inserter(order),
               [&](int node) { return connected.contains(node); });
  return order;
}

NetworkWork work_of(const Profile& profile, const std::vector<int>& order, double samples) {
  NetworkWork network;
  std::vector<bool> planned(profile.nodes.size());
  for (const int index : order) {
    const ProfileNode& node = profile.nodes.at(index);
    planned[index] = true;
    LayerWork layer;
    layer.name = node.id;
    layer.type = node.description;
    layer.parameters = node.parameter_bytes / kProfiledElementBytes;
    layer.backbone = true;
    layer.saved = layer.largest = {0, node.activation_bytes / kProfiledElementBytes / samples};
    layer.measured = measured_of(node, samples);
    network.layers.push_back(std::move(layer));
  }
  set_cuts(profile, order, samples, network.layers);
  for (size_t i = 0; i < profile.nodes.size(); ++i) {
    const ProfileNode& node = profile.nodes[i];
    if (planned[i] || !node.description.starts_with("Input")) continue;
    network.input.per_sample += node.activation_bytes / kProfiledElementBytes / samples;
  }
  return network;
}

void set_measured(NetworkWork& network, const Profile& profile, double samples,
                  std::string_view file) {
  std::map<std::string, const ProfileNode*> nodes;
  for (const ProfileNode& node : profile.nodes) {
    nodes.emplace(node.id, &node);
    nodes.emplace(node.description, &node);
  }
  for (LayerWork& layer : network.layers) {
    auto found = nodes.find(layer.name);
    if (found == nodes.end()) found = nodes.find(fmt::format("{}({})", layer.type, layer.name));
    if (found == nodes.end()) {
      fail_input("'{}' has no operator '{}' of {}; leave out ‹model›, or profile this model.", file,
                 layer.name, network.model);
    }
    layer.measured = measured_of(*found->second, samples);
  }
}

}  // namespace millrace::planner
