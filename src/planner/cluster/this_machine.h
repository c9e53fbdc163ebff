// The machine that Millrace runs on, as a cluster of one.
#pragma once

#include "planner/cluster/cluster.h"

namespace millrace::planner {

// One device per NUMA node, as hwloc sees the machine: its cores, its memory, and the links
// between nodes. Rates are estimates from the cores and their vector width; measure and replace
// `device.fp32_operations` and `device.memory_bandwidth` where it matters. Throws InputError if
// hwloc cannot read the machine.
simulate::Cluster this_machine();

}  // namespace millrace::planner
