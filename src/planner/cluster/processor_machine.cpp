#include "planner/cluster/processor_machine.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace millrace::planner {
namespace {

constexpr double kUsualClock = 2.5e9;    // cycles per second
constexpr double kCoreBandwidth = 10e9;  // bytes per second that one core moves
constexpr double kNodeBandwidth = 60e9;  // that the memory of one node gives at most
constexpr simulate::LinkClass kBetweenNodes = {15e9, 1e-6};  // through the sockets' interconnect
constexpr int kMostHosts = 1024;
constexpr int kMostCores = 65536;

// The value behind ` name="` in a tag; empty if it has no such attribute.
std::string_view attribute(std::string_view tag, std::string_view name) {
  for (size_t at = tag.find(name); at != std::string_view::npos; at = tag.find(name, at + 1)) {
    const size_t begin = at + name.size() + 2;
    const bool whole = at > 0 && (tag[at - 1] == ' ' || tag[at - 1] == '\n');
    if (!whole || tag.substr(at + name.size(), 2) != "=\"") continue;
    return tag.substr(begin, std::min(tag.find('"', begin), tag.size()) - begin);
  }
  return {};
}

double number(std::string_view digits) {
  double value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

}  // namespace

simulate::Cluster cluster_of(const ProcessorMachine& machine, double operations_per_cycle) {
  simulate::Cluster cluster;
  cluster.source = "hwloc; rates estimated from the cores";
  cluster.devices_per_machine = machine.nodes;
  cluster.host_cores = machine.cores;
  cluster.device.name = machine.processor;
  cluster.device.memory_bytes = std::max(machine.node_memory, 1.0);
  cluster.host_memory_bytes = cluster.device.memory_bytes * machine.nodes;
  cluster.devices_in_host_memory = true;
  const double cores_of_node = std::max(1, machine.cores / machine.nodes);
  cluster.device.fp32_operations = cores_of_node * kUsualClock * operations_per_cycle;
  cluster.device.memory_bandwidth = std::min(cores_of_node * kCoreBandwidth, kNodeBandwidth);
  cluster.classes["NODE"] = kBetweenNodes;
  cluster.links = simulate::equal_links(machine.nodes, "NODE");
  return cluster;
}

simulate::Cluster divided(const simulate::Cluster& machine, int devices) {
  simulate::Cluster cluster = machine;
  const double share = static_cast<double>(machine.devices_per_machine) / devices;
  cluster.device.fp32_operations *= share;
  cluster.device.fp16_operations *= share;
  cluster.device.bf16_operations *= share;
  cluster.device.memory_bandwidth *= share;
  cluster.device.memory_bytes *= machine.devices_per_machine;
  cluster.devices_per_machine = devices;
  const simulate::LinkClass link =
      machine.classes.empty() ? kBetweenNodes : machine.classes.begin()->second;
  cluster.classes = {{"NODE", link}};
  cluster.links = simulate::equal_links(devices, "NODE");
  return cluster;
}

ProcessorMachine parse_lstopo(std::string_view text, const std::string& file) {
  ProcessorMachine machine;
  machine.processor = std::string("processor");
  int units = 0;
  for (size_t at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::string_view tag = text.substr(at, std::min(text.find('>', at), text.size()) - at);
    if (tag.starts_with("<object")) {
      const std::string_view type = attribute(tag, "type");
      if (type == "Core") ++machine.cores;
      if (type == "PU") ++units;
      if (type != "NUMANode") continue;
      const double memory = number(attribute(tag, "local_memory"));
      machine.node_memory = machine.nodes == 0 ? memory : std::min(machine.node_memory, memory);
      ++machine.nodes;
    } else if (tag.starts_with("<info") && attribute(tag, "name") == "CPUModel") {
      machine.processor = std::string(attribute(tag, "value").substr(0, 100));
    }
  }
  if (machine.cores == 0) machine.cores = units;  // virtual machines may not tell cores
  const bool sensible = machine.nodes >= 1 && machine.nodes <= kMostHosts && machine.cores >= 1 &&
                        machine.cores <= kMostCores && machine.node_memory >= 1 &&
                        machine.node_memory <= 1e18;
  if (!sensible || text.find("</topology>") == std::string_view::npos) {
    fail_input("'{}' is not what 'lstopo --of xml' writes of a machine with cores and memory.",
               file);
  }
  return machine;
}

}  // namespace millrace::planner
