#include "evaluation.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "planner/antichain.h"

namespace millrace::planner {
namespace {

class Evaluator {
 public:
  Evaluator(const ProfileGraph& graph, const PipedreamOptions& options)
      : graph_(graph), options_(options), everything_(find_states(graph).states.back().prefix) {}

  PartitionCost evaluate(const std::vector<PipelineStage>& stages) {
    cost_ = {};
    cost_.seconds = pipeline(options_.levels.size() - 1, stages, graph_.empty_set(), everything_);
    return cost_;
  }

 private:
  int count_workers(size_t level, const std::vector<PipelineStage>& stages) const {
    int64_t used = 0;
    for (const PipelineStage& stage : stages) {
      const int replicas = stage.replicas;
      if (replicas < 1 || (options_.straight && replicas > 1)) {
        fail_input("A stage has {} replicas, which is not allowed here.", replicas);
      }
      used += replicas;
    }
    const int workers = options_.levels[level].workers;
    if (used > workers || (used < workers && !options_.fewer)) {
      fail_input("The stages of a level use {} workers of {}.", used, workers);
    }
    return static_cast<int>(used);
  }

  NodeSet extend(const NodeSet& before, const PipelineStage& stage) const {
    NodeSet after = before;
    for (const int node : stage.nodes) {
      if (node < 0 || static_cast<size_t>(node) >= graph_.profile().nodes.size() ||
          !everything_.contains(node) || after.contains(node)) {
        fail_input("Node {} is in two stages, or in one where it has no place.", node);
      }
      after.insert(node);
    }
    for (const int node : stage.nodes) {
      if (!graph_.ancestors(node).is_subset_of(after)) {
        fail_input("The operator '{}' is in a stage before one that feeds it.",
                   graph_.profile().nodes[node].id);
      }
    }
    return after;
  }

  double send_bytes(const NodeSet& prefix) const {
    return prefix == everything_ ? 0 : graph_.output_bytes(graph_.last_nodes(prefix));
  }

  // Stages of one level for the nodes of `end` that are not in `start`.
  double pipeline(size_t level, const std::vector<PipelineStage>& stages, const NodeSet& start,
                  const NodeSet& end) {
    const auto& [workers, bandwidth] = options_.levels[level];
    int later = count_workers(level, stages);
    double slowest = 0;
    NodeSet before = start;
    for (size_t index = 0; index < stages.size(); ++index) {
      const PipelineStage& stage = stages[index];
      const NodeSet after = extend(before, stage);
      NodeSet own = after;
      own -= before;
      const Totals totals = graph_.totals(own);
      const int replicas = stage.replicas;
      later -= replicas;

      const double compute =
          level == 0 ? totals.seconds : pipeline(level - 1, stage.parts, before, after);
      double reduce = 4.0 * (replicas - 1) * totals.parameter_bytes / (replicas * bandwidth);
      if (index == 0 && level > 0) reduce /= options_.levels[level - 1].workers;
      slowest = std::max(slowest, (compute + reduce) / replicas);
      if (index > 0 && options_.activation_ratio) {
        const double busier = std::max(send_bytes(before), send_bytes(after));
        slowest =
            std::max(slowest, 2 * busier / (replicas * bandwidth) / *options_.activation_ratio);
      }
      // Idle workers count as standing between the first stage and the second.
      const int behind = index == 0 ? workers - replicas : later;
      const double copies = std::ceil(static_cast<double>(behind) / replicas);
      if (options_.memory_bytes &&
          copies * (totals.activation_bytes + totals.parameter_bytes) > *options_.memory_bytes) {
        cost_.fits = false;
      }
      before = after;
    }
    if (!(before == end)) fail_input("The stages of a level leave operators out.");
    return slowest;
  }

  const ProfileGraph& graph_;
  const PipedreamOptions& options_;
  NodeSet everything_;
  PartitionCost cost_;
};

}  // namespace

PartitionCost evaluate_partition(const Profile& profile, const PipedreamOptions& options,
                                 const std::vector<PipelineStage>& stages) {
  check(options);
  const ProfileGraph graph(profile);
  return Evaluator(graph, options).evaluate(stages);
}

}  // namespace millrace::planner
