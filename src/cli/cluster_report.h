// How plans for a cluster are shown: as JSON, and as text made from it.
#pragma once

#include <string>

#include "planner/search/question.h"

namespace millrace::cli {

// The contract of `plan --json`: "devices" with their memory, predicted times, "fits" and "plan".
Json describe_prediction(const planner::PlannedJob& job, const planner::Prediction& prediction,
                         const planner::PlanInputs& inputs);

// What such predictions rest on: "published", a formula that was fitted to published rows, or
// "formula".
std::string source_of(const planner::PlanInputs& inputs);

// The best plans and why the others lost.
Json describe_search(const planner::SearchOutcome& outcome, const planner::PlanInputs& inputs);

// Puts a described search beside the plan that it chose, with the speed of PipeDream's own plan.
void add_search(Json& described, Json search);

// Where a described plan goes: its plan and timeline to files, unless the names are empty, and all
// of it to the user.
struct PlanOutput {
  std::string plan;
  std::string trace;
  bool json = false;
};

void deliver(const Json& described, const planner::Prediction& prediction,
             const PlanOutput& output);

// Flags of `train` that belong to the plan but are not part of it.
Json describe_flags(const planner::PlannedJob& job);

// Whether the plan computes what one device does, and if not what that has cost elsewhere.
void add_exactness(Json& described, const planner::PlannedJob& job);

// What a device costs, and how many samples the job as a whole takes, if that is known.
struct PriceQuestion {
  double per_device_hour = 0;  // 0: nobody asked
  int64_t epochs = 0, steps = 0;
};

// Adds what an epoch and the run cost to a described plan.
void add_price(Json& described, const PriceQuestion& question);

// The layers and devices of each stage.
Json describe_stages(const planner::PlannedJob& job, const planner::NetworkWork& network,
                     int devices_per_machine);

// Lines of the stages of a described plan, with the memory of a device of each.
std::string format_stage_lines(const Json& described);

// The price of a described plan as a line; empty without one.
std::string format_price(const Json& described);

std::string format_prediction(const Json& described);
std::string format_search(const Json& described);

}  // namespace millrace::cli
