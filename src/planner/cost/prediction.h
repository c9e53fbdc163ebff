// What a planned job will take on a cluster: time by simulation, memory by stage.
#pragma once

#include <string>
#include <vector>

#include "planner/cost/planned_simulation.h"

namespace millrace::planner {

inline constexpr double kImagesOfEpoch = 1281167;  // of ImageNet

struct Prediction {
  double seconds_per_step = 0;
  double samples_per_second = 0;
  double epoch_seconds = 0;
  double bubble = 0;       // mean share of the time in which the stages' devices compute nothing
  std::string limited_by;  // "computing", "reading images", ...
  std::vector<StageCost> costs;
  std::vector<StageMemory> memory;    // of a device of each stage
  std::vector<double> device_memory;  // of a device of each stage, stages that share it added up
  double host_memory = 0;             // of the host that holds the most
  bool fits = true;
  std::string reason;  // why it does not fit
  simulate::JobSimulation simulation;
  simulate::SimulationResult result;
};

Prediction predict(const CostContext& context, const PlannedJob& job);

}  // namespace millrace::planner
