// The planner's costs of a network as measured here, in place of what its formulas say.
#pragma once

#include "planner/cost/cost_context.h"
#include "planner/cost/planned_job.h"
#include "profile/job_profile.h"

namespace millrace::profile {

// What the layers of a network take for one number of samples, on one device. Plain data.
struct LayerSeconds {
  struct Layer {
    std::string name;
    double forward = 0, backward = 0;
  };
  double samples = 0;
  std::vector<Layer> layers;
  double update = 0;  // of all weights

  static LayerSeconds of(const JobProfile& profile);
};

Json to_json(const LayerSeconds& seconds);
LayerSeconds parse_layer_seconds(const Json& json);

// What `search_plans` needs, with values of its own.
struct CalibratedCosts {
  planner::NetworkWork network;
  planner::CostConstants constants;
  planner::SoftwareConstants software;
};

// Costs by which the layers take the measured seconds on a device like `measured_on`, straight
// lines through both measurements, and in proportion on faster or slower ones. Layers that were
// not measured keep their work. `few` has fewer samples than `many`.
CalibratedCosts calibrate(const planner::CostContext& context, graph::DataType precision,
                          const simulate::DeviceKind& measured_on, const LayerSeconds& few,
                          const LayerSeconds& many);

// Moves each cut behind layers that take no time because they are joined into the one before.
void cut_behind_joined(const planner::NetworkWork& network, planner::PlannedJob& job);

}  // namespace millrace::profile
