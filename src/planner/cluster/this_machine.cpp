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

constexpr double kUsualOperations = 32;  // multiplies and adds of float32 per cycle and core
constexpr size_t kLongestXml = size_t{16} << 20;

TopologyHandle start_hwloc() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail_input("hwloc cannot start on this machine.");
  return TopologyHandle(raw);
}

double operations_per_cycle() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2")) return kUsualOperations;
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

Cluster cluster_of(const TopologyHandle& topology, double operations) {
  const int nodes = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE));
  const int cores = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE));
  double memory = node_memory(topology.get(), 0);
  for (int node = 1; node < nodes; ++node) {
    memory = std::min(memory, node_memory(topology.get(), static_cast<unsigned>(node)));
  }
  Cluster cluster;
  cluster.source = "hwloc; rates estimated from the cores";
  cluster.devices_per_machine = nodes;
  cluster.host_cores = cores;
  cluster.device.name = processor_name(topology.get());
  cluster.device.memory_bytes = std::max(memory, 1.0);
  const double cores_of_node = std::max(1, cores / nodes);
  cluster.device.fp32_operations = cores_of_node * kUsualClock * operations;
  cluster.device.memory_bandwidth = std::min(cores_of_node * kCoreBandwidth, kNodeBandwidth);
  cluster.classes["NODE"] = kBetweenNodes;
  for (int i = 0; i < nodes; ++i) {
    cluster.links.emplace_back(static_cast<size_t>(nodes), "NODE");
    cluster.links.back()[static_cast<size_t>(i)] = std::string("X");
  }
  return cluster;
}

}  // namespace

Cluster this_machine() {
  const TopologyHandle topology = start_hwloc();
  if (hwloc_topology_load(topology.get()) != 0) fail_input("hwloc cannot read this machine.");
  Cluster cluster = cluster_of(topology, operations_per_cycle());
  cluster.name = "this-machine";
  return cluster;
}

Cluster machine_of_xml(std::string_view text, const std::string& file) {
  if (text.size() > kLongestXml) fail_input("'{}' is too long for a machine's XML.", file);
  const std::string ended(text);  // hwloc wants the zero behind it
  const TopologyHandle topology = start_hwloc();
  const auto size = static_cast<int>(ended.size() + 1);
  if (hwloc_topology_set_xmlbuffer(topology.get(), ended.c_str(), size) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    fail_input("'{}' is not what 'lstopo --of xml' writes.", file);
  }
  Cluster cluster = cluster_of(topology, kUsualOperations);
  cluster.name = std::filesystem::path(file).stem().string();
  return cluster;
}

}  // namespace millrace
