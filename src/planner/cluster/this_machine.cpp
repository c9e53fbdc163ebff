#include "planner/cluster/this_machine.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/memory.h"
#include "planner/cluster/processor_machine.h"

namespace millrace::planner {
namespace {

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

simulate::Cluster this_machine() {
  const TopologyHandle topology = load();
  ProcessorMachine machine;
  machine.processor = processor_name(topology.get());
  machine.nodes = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_NUMANODE));
  machine.cores = std::max(1, hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE));
  machine.node_memory = node_memory(topology.get(), 0);
  for (int node = 1; node < machine.nodes; ++node) {
    machine.node_memory =
        std::min(machine.node_memory, node_memory(topology.get(), static_cast<unsigned>(node)));
  }
  simulate::Cluster cluster = cluster_of(machine, operations_per_cycle());
  cluster.name = "this-machine";
  cluster.host_memory_bytes =
      std::min(cluster.host_memory_bytes, static_cast<double>(host_memory()));
  return cluster;
}

}  // namespace millrace::planner
