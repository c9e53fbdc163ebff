// What the devices of a planned job send each other, as items for the simulator.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "planner/cost/pipeline_simulation.h"
#include "planner/simulate/item_list.h"

namespace millrace::planner {

// Knows the lanes, rings and costs of the stages. Borrows the inputs.
class StageTraffic : public ItemList {
 public:
  explicit StageTraffic(const StepInputs& inputs);

  const StageCost& cost(int stage) const { return costs_[static_cast<size_t>(stage)]; }
  const LinkPath& ring(int stage) const { return rings_[static_cast<size_t>(stage)]; }
  int replicas(int stage) const;
  // The device whose items stand for the stage's, with this micro-batch.
  int device_of(int stage, int index) const;
  int compute_lane(int device);

  // A message to the next or previous stage.
  int emit_message(int from, int to, int index, double bytes, const char* name);

  // What devices that divide layers exchange; returns the last of it, or `behind` where there is
  // nothing.
  int emit_exchanges(int stage, int lane, int behind, const std::vector<StageExchange>& exchanges);

  // A sum of gradients among the replicas of a stage.
  int emit_reduce(int stage, int index, double bytes, int lane);

  // Replicas that share the update give each other their parts of the new weights.
  int emit_weights(int stage, int step, int update);

 private:
  const StepInputs& inputs_;
  const PlannedJob& job_;
  std::vector<StageCost> costs_;
  std::vector<LinkPath> rings_;
  std::map<std::pair<int, int>, double> boundaries_;  // seconds of a byte between two stages
};

}  // namespace millrace::planner
