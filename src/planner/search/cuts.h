// Where to cut a network into stages.
#pragma once

#include <vector>

#include "planner/cost/cost_context.h"
#include "planner/cost/stage_cost.h"
#include "simulate/fabric.h"

namespace millrace::planner {

// Seconds that layers [begin, end) keep one step's worth of work busy on `replicas` devices, by
// formula: computing, updating, what is not hidden of summing gradients. Made once per job, then
// cheap to ask.
class StageTimes {
 public:
  // The devices of `job.stages` matter only for how many there are in all.
  StageTimes(const CostContext& context, const PlannedJob& job);

  // With `replicas` devices sharing the batch, or taking turns.
  double seconds(int begin, int end, int replicas, double link_rate) const;
  double compute(int begin, int end, int replicas) const;

 private:
  double sum(const std::vector<double>& prefix, int begin, int end) const {
    return prefix[end] - prefix[begin];
  }

  bool round_robin_, share_optimizer_;
  double samples_;
  std::vector<double> fixed_, per_sample_, parameters_, updates_;  // prefix sums over layers
  double bytes_per_parameter_;
  double exposed_, collective_efficiency_;
};

// What the devices of a job's stages reach, however the network is cut.
struct StageLinks {
  std::vector<double> rings;       // bytes per second of each stage's
  std::vector<double> boundaries;  // seconds of a byte behind each stage but the last
};

StageLinks links_of(const CostContext& context, const PlannedJob& job,
                    const simulate::Fabric& fabric);

// Cuts so that the slowest stage or boundary is as fast as possible on the devices that each stage
// has; returns the end of each stage. Without boundaries in `links` messages count for nothing, as
// PipeDream has it.
std::vector<int> cut_by_cost(const CostContext& context, const PlannedJob& job,
                             const StageLinks& links);
std::vector<int> cut_by_cost(const CostContext& context, const PlannedJob& job);

// Those and others that may be faster: a step also waits for every stage and message once, so that
// a stage that is slower than it might be is worth shorter messages. By how much it may be slower
// is what they differ in. Each once.
std::vector<std::vector<int>> likely_cuts(const CostContext& context, const PlannedJob& job,
                                          const StageLinks& links);

// Gives each stage of the job its layers.
void set_cuts(PlannedJob& job, const std::vector<int>& ends);

}  // namespace millrace::planner
