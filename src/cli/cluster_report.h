// How plans for a cluster are shown: as JSON, and as text made from it.
#pragma once

#include <string>

#include "planner/search/search.h"

namespace millrace {

// What every plan of one run has in common.
struct PlanInputs {
  NetworkWork network;
  Cluster cluster;
  CostConstants constants;
  SoftwareConstants software;
};

// The contract of `plan --json`: "devices" with their memory, predicted times, "fits" and "plan".
Json describe_prediction(const PlannedJob& job, const Prediction& prediction,
                         const PlanInputs& inputs);

// The best plans and why the others lost.
Json describe_search(const SearchOutcome& outcome, const PlanInputs& inputs);

// Flags of `train` that belong to the plan but are not part of it.
Json describe_flags(const PlannedJob& job);

// The layers and devices of each stage.
Json describe_stages(const PlannedJob& job, const NetworkWork& network, int devices_per_machine);

std::string format_prediction(const Json& described);
std::string format_search(const Json& described);

}  // namespace millrace
