// A machine with processors only, as a cluster of one.
#pragma once

#include <string>
#include <string_view>

#include "planner/cluster/cluster.h"

namespace millrace {

// One device per NUMA node, as hwloc sees the machine: its cores, its memory, and the links
// between nodes. Rates are estimates from the cores and their vector width; measure and replace
// `device.fp32_operations` and `device.memory_bandwidth` where it matters. Throws InputError if
// hwloc cannot read the machine.
Cluster this_machine();

// The same of the machine on which `lstopo --of xml` wrote `text`. How wide its vectors are is not
// written there: rates are those of eight float32 at once. Takes any bytes; throws InputError
// naming `file`.
Cluster machine_of_xml(std::string_view text, const std::string& file);

}  // namespace millrace
