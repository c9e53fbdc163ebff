// What a search over a profile instead of a model starts from.
#pragma once

#include <string>
#include <vector>

#include "planner/cluster/cluster.h"
#include "planner/cost/profile_work.h"
#include "planner/search/pipedream_division.h"

namespace millrace::planner {

// Plain data. `divisions` are for SearchRequest: PipeDream's plan for the options, or none.
struct ProfiledNetwork {
  NetworkWork network;
  std::vector<Division> divisions;
  std::vector<std::string> ignored;  // ids of operators that are not connected to the first one
};

// A network of which PipeDream's division for these options is a division of neighbouring layers,
// also where operators branch. `samples`: of the profile's mini-batch. No division where PipeDream
// finds none, or would take too long. Throws InputError for a profile that cannot be planned.
ProfiledNetwork divide_profile(const Profile& profile, const PipedreamOptions& options,
                               double samples);

// Machines of equal devices: the inner level are the devices of a machine, the outer one machines,
// each with links of that bandwidth and no latency. Devices have no limit of memory, and speeds
// that do not matter where all times are measured. Throws InputError for three levels or more, or
// more devices than are planned.
simulate::Cluster cluster_of(const std::vector<Level>& levels);

}  // namespace millrace::planner
