// What a given division into stages costs, by PipeDream's formulas.
#pragma once

#include <vector>

#include "planner/pipedream.h"

namespace millrace::planner {

struct PartitionCost {
  double seconds = 0;  // per mini-batch
  bool fits = true;    // every stage is within the memory limit, by PipeDream's rule
};

// Looks at the nodes of each stage alone, not at how the division was found. Throws InputError if
// `stages` do not divide the planned nodes of the profile in an order in which data flows forward,
// or do not suit the levels and options.
PartitionCost evaluate_partition(const Profile& profile, const PipedreamOptions& options,
                                 const std::vector<PipelineStage>& stages);

}  // namespace millrace::planner
