#include "planner/cluster/this_machine.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/memory.h"
#include "planner/cluster/processor_machine.h"

namespace millrace::planner {
namespace {

double operations_per_cycle() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return 64;
  if (__builtin_cpu_supports("avx2")) return 32;
#endif
  return 16;
}

// What `lstopo --of xml` would write here.
std::string lstopo_here() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) fail_input("hwloc cannot start on this machine.");
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)> topology(raw,
                                                                            hwloc_topology_destroy);
  char* xml = nullptr;
  int length = 0;
  if (hwloc_topology_load(raw) != 0 ||
      hwloc_topology_export_xmlbuffer(raw, &xml, &length, 0) != 0) {
    fail_input("hwloc cannot read this machine.");
  }
  std::string text(xml);
  hwloc_free_xmlbuffer(raw, xml);
  return text;
}

}  // namespace

simulate::Cluster this_machine() {
  simulate::Cluster cluster =
      cluster_of(parse_lstopo(lstopo_here(), "this machine"), operations_per_cycle());
  cluster.name = "this-machine";
  cluster.host_memory_bytes =
      std::min(cluster.host_memory_bytes, static_cast<double>(host_memory()));
  return cluster;
}

}  // namespace millrace::planner
