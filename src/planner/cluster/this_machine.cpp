#include "planner/cluster/this_machine.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/error.h"

namespace millrace {
namespace {

constexpr double kUsualClock = 2.5e9;              // cycles per second
constexpr double kCoreBandwidth = 10e9;            // bytes per second that one core moves
constexpr double kNodeBandwidth = 60e9;            // that the memory of one node gives at most
constexpr LinkClass kBetweenNodes = {15e9, 1e-6};  // through the sockets' interconnect

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, Destroy>;

TopologyHandle load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail_input("hwloc cannot start on this machine.");
  TopologyHandle topology(raw);
  if (hwloc_topology_load(raw) != 0) fail_input("hwloc cannot read this machine.");
  return topology;
}

// Multiplies and adds of float32 per cycle and core.
double operations_per_cycle() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2")) return 32;
#endif
  return 16;
}

std::string processor_name(hwloc_topology* topology) {
  hwloc_obj* package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
  const char* name = package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
  return name == nullptr ? "processor" : name;
}

double node_memory(hwloc_topology* topology, unsigned node) {
  const hwloc_obj* object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node);
  if (object == nullptr || object->attr == nullptr) return 0;
  return static_cast<double>(object->attr->numanode.local_memory);
}

}  // namespace

Cluster this_machine() {
  const TopologyHandle topology = load();
  const int nodes = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE));
  const int cores = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE));
  double memory = node_memory(topology.get(), 0);
  for (int node = 1; node < nodes; ++node) {
    memory = std::min(memory, node_memory(topology.get(), static_cast<unsigned>(node)));
  }
  Cluster cluster;
  cluster.name = "this-machine";
  cluster.source = "hwloc; rates estimated from the cores";
  cluster.devices_per_machine = nodes;
  cluster.host_cores = cores;
  cluster.device.name = processor_name(topology.get());
  cluster.device.memory_bytes = std::max(memory, 1.0);
  const double cores_of_node = std::max(1, cores / nodes);
  cluster.device.fp32_operations = cores_of_node * kUsualClock * operations_per_cycle();
  cluster.device.memory_bandwidth = std::min(cores_of_node * kCoreBandwidth, kNodeBandwidth);
  cluster.classes["NODE"] = kBetweenNodes;
  for (int i = 0; i < nodes; ++i) {
    cluster.links.emplace_back(static_cast<size_t>(nodes), "NODE");
    cluster.links.back()[static_cast<size_t>(i)] = std::string("X");
  }
  return cluster;
}

Cluster divided(const Cluster& machine, int devices) {
  Cluster cluster = machine;
  const double share = static_cast<double>(machine.devices_per_machine) / devices;
  cluster.device.fp32_operations *= share;
  cluster.device.fp16_operations *= share;
  cluster.device.bf16_operations *= share;
  cluster.device.memory_bandwidth *= share;
  cluster.device.memory_bytes *= machine.devices_per_machine;
  cluster.devices_per_machine = devices;
  const LinkClass link = machine.classes.empty() ? kBetweenNodes : machine.classes.begin()->second;
  cluster.classes = {{"NODE", link}};
  cluster.links.clear();
  for (int i = 0; i < devices; ++i) {
    cluster.links.emplace_back(static_cast<size_t>(devices), "NODE");
    cluster.links.back()[static_cast<size_t>(i)] = std::string("X");
  }
  return cluster;
}

}  // namespace millrace
