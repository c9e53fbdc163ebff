// A plan as users, planners, `train` and reports exchange it: complete, versioned JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "graph/margin_head.h"
#include "graph/types.h"
#include "parallel/plan.h"
#include "passes/settings.h"

namespace millrace::parallel {

inline constexpr int kPlanVersion = 1;

// How a margin head lies on the devices.
struct PlannedHeadDivision {
  graph::HeadParallel parallel = graph::HeadParallel::mp;
  double sample_rate = 1;  // of pfc
};

// What a plan was made for; empty or 0 where it does not say.
struct PlanPurpose {
  std::string model;
  int64_t batch = 0;  // samples of a device
  std::string cluster;
};

// Plain data. What is not there is left to the flags of the job.
struct PlanFile {
  Plan plan;
  std::optional<graph::DataType> precision = {};
  std::optional<graph::DataType> wire = {};  // what travels between devices
  std::optional<passes::RecomputePolicy> recompute = {};
  std::optional<PlannedHeadDivision> head = {};
  PlanPurpose made_for = {};
};

// The fields of the plan, "version", and "precision", "comm_dtype", "recompute", "head" and
// "made_for" where there are such.
Json to_json(const PlanFile& file);

// Throws InputError that starts with `source` and names the field at fault; unknown fields and
// other versions are refused. A file without "version" is taken to be of this one.
PlanFile parse_plan_file(const Json& json, std::string_view source);

// As the flags call them: "dp", "auto".
std::string_view name_of_division(graph::HeadParallel parallel);
std::string_view name_of_policy(passes::RecomputePolicy policy);

}  // namespace millrace::parallel
