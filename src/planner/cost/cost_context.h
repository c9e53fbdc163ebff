// What every plan of one question has in common.
#pragma once

#include "planner/cluster/cluster.h"
#include "planner/cost/constants.h"
#include "planner/cost/network_work.h"

namespace millrace::planner {

// Borrows all of it.
struct CostContext {
  const NetworkWork& network;
  const simulate::Cluster& cluster;
  const CostConstants& constants;
  const SoftwareConstants& software;
};

}  // namespace millrace::planner
