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

// Puts a described search beside the plan that it chose, with the speed of PipeDream's own plan.
void add_search(Json& described, Json search);

// Where a described plan goes: its plan and timeline to files, unless the names are empty, and all
// of it to the user.
struct PlanOutput {
  std::string plan;
  std::string trace;
  bool json = false;
};

void deliver(const Json& described, const Prediction& prediction, const PlanOutput& output);

// Flags of `train` that belong to the plan but are not part of it.
Json describe_flags(const PlannedJob& job);

// The layers and devices of each stage.
Json describe_stages(const PlannedJob& job, const NetworkWork& network, int devices_per_machine);

// Lines of the stages of a described plan, with the memory of a device of each.
std::string format_stage_lines(const Json& described);

std::string format_prediction(const Json& described);
std::string format_search(const Json& described);

}  // namespace millrace
