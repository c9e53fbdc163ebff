#include "planner/pipedream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "planner/antichain.h"

namespace millrace::planner {
namespace {

constexpr double kImpossible = std::numeric_limits<double>::infinity();
constexpr int kMostWorkers = 4096;
constexpr double kSlowest = 1e-6;
constexpr double kFastest = 1e30;

// A start or a split that is no state: the part begins with the network.
constexpr int kBeginning = -1;

// The best found for the states up to one, on some workers. `workers` counts those in use and those
// left idle before the last stage.
struct Choice {
  double seconds = kImpossible;
  int split = kBeginning;
  int replicas = 0;
  int workers = 0;
};

// The table of one level for one start: choices by state and number of workers.
class Table {
 public:
  Table(size_t states, int workers) : workers_(workers), choices_(states * workers) {}
  Choice& at(int state, int workers) {
    return choices_[static_cast<size_t>(state) * workers_ + workers - 1];
  }

 private:
  int workers_;
  std::vector<Choice> choices_;
};

class Optimizer {
 public:
  Optimizer(const ProfileGraph& graph, const PipedreamOptions& options)
      : graph_(graph), options_(options), space_(find_states(graph)) {
    for (int level = 0; level + 1 < level_count(); ++level) solve_every_start(level);
  }

  PipedreamPlan plan() {
    PipedreamPlan plan;
    plan.states = count();
    plan.unreached = space_.unreached;
    plan.data_parallel_seconds = data_parallel_seconds();
    const int outermost = level_count() - 1;
    const double best =
        solve(outermost, kBeginning).at(count() - 1, options_.levels.back().workers).seconds;
    if (best < kImpossible) {
      plan.pipeline_seconds = best;
      plan.stages = stages(outermost, kBeginning, count() - 1);
    }
    return plan;
  }

 private:
  int count() const { return static_cast<int>(space_.states.size()); }
  int level_count() const { return static_cast<int>(options_.levels.size()); }

  Totals between(int start, int end) const {
    Totals totals = space_.states[end].totals;
    if (start == kBeginning) return totals;
    const Totals& before = space_.states[start].totals;
    return {totals.seconds - before.seconds, totals.activation_bytes - before.activation_bytes,
            totals.parameter_bytes - before.parameter_bytes};
  }

  // Seconds of the states after `start` up to `end` on one worker of the level.
  double compute_seconds(int level, int start, int end) const {
    if (level == 0) return between(start, end).seconds;
    return inner_seconds_[level - 1][static_cast<size_t>(start + 1) * count() + end];
  }

  bool fits(const Totals& part, int idle, int replicas) const {
    if (!options_.memory_bytes) return true;
    const int copies = (idle + replicas - 1) / replicas;
    return copies * (part.activation_bytes + part.parameter_bytes) <= *options_.memory_bytes;
  }

  double reduce_seconds(int level, double bytes, int replicas) const {
    return 4.0 * (replicas - 1) * bytes / (replicas * options_.levels[level].bandwidth);
  }

  int inner_workers(int level) const { return level == 0 ? 1 : options_.levels[level - 1].workers; }

  void take_one_stage(int level, int start, int end, Table& table) const {
    const int workers = options_.levels[level].workers;
    const Totals part = between(start, end);
    const double compute = compute_seconds(level, start, end);
    for (int used = 1; used <= (options_.straight ? 1 : workers); ++used) {
      if (!fits(part, workers - used, used)) continue;
      const double reduce =
          reduce_seconds(level, part.parameter_bytes, used) / inner_workers(level);
      table.at(end, used) = {(compute + reduce) / used, kBeginning, used, used};
    }
  }

  // Bytes on the busier side of a last stage after `split`, both ways.
  double transfer_bytes(int split, int end) const {
    const double in = space_.states[split].output_bytes;
    const double out = end + 1 == count() ? 0 : space_.states[end].output_bytes;
    return 2 * std::max(in, out);
  }

  void take_split(int level, int split, int end, Table& table) const {
    const auto& [workers, bandwidth] = options_.levels[level];
    const Totals part = between(split, end);
    const double compute = compute_seconds(level, split, end);
    if (compute == kImpossible) return;
    const double transfer = options_.activation_ratio ? transfer_bytes(split, end) / bandwidth /
                                                            *options_.activation_ratio
                                                      : 0;
    for (int replicas = 1; replicas < (options_.straight ? 2 : workers); ++replicas) {
      const double stage =
          (compute + reduce_seconds(level, part.parameter_bytes, replicas)) / replicas;
      const double last = std::max(stage, transfer / replicas);
      for (int used = replicas + 1; used <= workers; ++used) {
        const double seconds = std::max(table.at(split, used - replicas).seconds, last);
        if (seconds >= table.at(end, used).seconds) continue;
        if (!fits(part, workers - used, replicas)) continue;
        table.at(end, used) = {seconds, split, replicas, used};
      }
    }
  }

  // States not after `start` keep impossible choices, so they are no splits either.
  Table solve(int level, int start) const {
    const int workers = options_.levels[level].workers;
    Table table(space_.states.size(), workers);
    for (int end = start + 1; end < count(); ++end) {
      const std::vector<int>& inside = space_.predecessors[end];
      if (start != kBeginning && !std::binary_search(inside.begin(), inside.end(), start)) continue;
      take_one_stage(level, start, end, table);
      if (workers > 1) {
        for (auto split = std::upper_bound(inside.begin(), inside.end(), start);
             split != inside.end(); ++split) {
          take_split(level, *split, end, table);
        }
      }
      for (int used = 2; options_.fewer && used <= workers; ++used) {
        const Choice& smaller = table.at(end, used - 1);
        if (smaller.seconds < table.at(end, used).seconds) table.at(end, used) = smaller;
      }
    }
    return table;
  }

  void solve_every_start(int level) {
    const int workers = options_.levels[level].workers;
    std::vector<double> seconds(static_cast<size_t>(count() + 1) * count(), kImpossible);
    for (int start = kBeginning; start + 1 < count(); ++start) {
      Table table = solve(level, start);
      for (int end = start + 1; end < count(); ++end) {
        seconds[static_cast<size_t>(start + 1) * count() + end] = table.at(end, workers).seconds;
      }
    }
    inner_seconds_.push_back(std::move(seconds));
  }

  std::vector<int> nodes_between(int start, int end) const {
    NodeSet nodes = space_.states[end].prefix;
    if (start != kBeginning) nodes -= space_.states[start].prefix;
    std::vector<int> result;
    for (const int node : graph_.order()) {
      if (nodes.contains(node)) result.push_back(node);
    }
    return result;
  }

  std::vector<PipelineStage> stages(int level, int start, int end) const {
    Table table = solve(level, start);
    std::vector<PipelineStage> found;
    int workers = options_.levels[level].workers;
    while (end != start) {
      const Choice& choice = table.at(end, workers);
      const int before = choice.split == kBeginning ? start : choice.split;
      PipelineStage stage{nodes_between(before, end), choice.replicas, {}};
      if (level > 0) stage.parts = stages(level - 1, before, end);
      found.push_back(std::move(stage));
      workers = choice.workers - choice.replicas;
      end = before;
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  double data_parallel_seconds() const {
    const Totals all = space_.states.back().totals;
    double seconds = all.seconds;
    for (int level = 0; level < level_count(); ++level) {
      const int workers = options_.levels[level].workers;
      const double reduce = reduce_seconds(level, all.parameter_bytes, workers);
      seconds = (seconds + reduce / inner_workers(level)) / workers;
    }
    return seconds;
  }

  const ProfileGraph& graph_;
  const PipedreamOptions& options_;
  StateSpace space_;
  // By level: seconds of the states after a start up to an end, with all workers of the level.
  std::vector<std::vector<double>> inner_seconds_;
};

}  // namespace

void check(const PipedreamOptions& options) {
  if (options.levels.empty()) fail_input("The machine needs at least one level of workers.");
  for (const Level& level : options.levels) {
    if (level.workers < 1 || level.workers > kMostWorkers) {
      fail_input("A level has {} workers; it can have 1 to {}.", level.workers, kMostWorkers);
    }
    if (!(level.bandwidth >= kSlowest && level.bandwidth <= kFastest)) {
      fail_input("The bandwidth {} is not a number of bytes per second from 1e-6 to 1e30.",
                 level.bandwidth);
    }
  }
  const auto ratio = options.activation_ratio;
  if (ratio && !(*ratio >= kSlowest && *ratio <= kFastest)) {
    fail_input("The activation ratio {} is not a number from 1e-6 to 1e30.", *ratio);
  }
  if (options.memory_bytes && !(*options.memory_bytes > 0)) {
    fail_input("The memory of a worker must be above 0 bytes.");
  }
}

PipedreamPlan optimize_pipedream(const Profile& profile, const PipedreamOptions& options) {
  check(options);
  const ProfileGraph graph(profile);
  return Optimizer(graph, options).plan();
}

}  // namespace millrace::planner
