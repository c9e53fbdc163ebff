// A machine that computes on its processors, as a cluster of one.
#pragma once

#include <string>
#include <string_view>

#include "planner/cluster/cluster.h"

namespace millrace::planner {

// What hwloc knows of a machine, as far as it matters here.
struct ProcessorMachine {
  std::string processor;
  int nodes = 0;           // of memory (NUMA)
  int cores = 0;           // of all nodes
  double node_memory = 0;  // bytes of the smallest node
};

// One device per node. Rates are estimates from the cores; `operations_per_cycle` of float32 for
// each, a multiply and an add counted apart.
simulate::Cluster cluster_of(const ProcessorMachine& machine, double operations_per_cycle);

// The same machine with its cores divided evenly over so many devices: each has its part of the
// rates, and may take all of the memory.
simulate::Cluster divided(const simulate::Cluster& machine, int devices);

// The machine on which `lstopo --of xml` wrote `text`. Only tags and their attributes are read: any
// bytes may come, also those that hwloc itself would not survive. Throws InputError naming `file`
// where there is no core or no memory.
ProcessorMachine parse_lstopo(std::string_view text, const std::string& file);

}  // namespace millrace::planner
