// A network cut and divided as a plan says: the graph of every device. Plain data; no threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "parallel/plan.h"
#include "parallel/shard.h"
#include "parallel/stage_graph.h"

namespace millrace::parallel {

// The same network for another number of samples, as a micro-batch of a step of `mean_over`. Its
// loss stays the mean over those. `members` devices divide it.
graph::Graph with_batch(const graph::Graph& network, int64_t batch, int64_t mean_over,
                        int members = 1);

// The stages of a network under a plan, for training and for evaluation alike.
class JobGraphs {
 public:
  // `network` has the samples of a whole step. Throws InputError where it cannot be divided so.
  JobGraphs(const graph::Graph& network, const Plan& plan);

  const Plan& plan() const { return plan_; }
  int64_t micro_batch() const { return micro_batch_; }  // samples
  const std::vector<StageEdge>& edges() const { return edges_; }

  // Devices among which each micro-batch of a stage is divided.
  int members(int stage) const;

  // The forward graph of a device of a stage; with round-robin replicas every member's is whole.
  StageGraph local(int stage, int member) const;

 private:
  struct Stage {
    StageGraph whole;
    std::optional<ShardedGraph> sharded;  // with several members
  };

  Plan plan_;
  int64_t micro_batch_ = 0;
  std::vector<StageEdge> edges_;
  std::vector<Stage> stages_;
};

}  // namespace millrace::parallel
