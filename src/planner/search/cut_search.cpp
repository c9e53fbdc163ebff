#include "planner/search/cut_search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "planner/cost/memory_needs.h"
#include "planner/cost/prediction.h"
#include "planner/search/cuts.h"

namespace millrace::planner {
namespace {

// Items of the simulator for a micro-batch of a stage, in all the steps that it simulates.
constexpr double kItemsOfTask = 60;
constexpr double kItemsOfDevice = 4;  // as much work as a device's links are
constexpr size_t kLeastSimulated = 6;

class CutSearch {
 public:
  CutSearch(const CostContext& context, PlannedJob job, const CutRules& rules)
      : context_(context), job_(std::move(job)), rules_(rules) {
    const double items =
        kItemsOfTask * static_cast<double>(job_.stages.size()) * job_.micro_batches +
        kItemsOfDevice * context.cluster.devices();
    left_ = std::max(kLeastSimulated, static_cast<size_t>(rules.most_items / items));
  }

  PlannedJob run() {
    const Fabric fabric(context_.cluster);
    for (const std::vector<int>& ends :
         likely_cuts(context_, job_, links_of(context_, job_, fabric)))
      try_cuts(ends);
    for (bool better = true; better && left_ > 0;) {
      better = false;
      const size_t last = job_.stages.size() - 2;
      for (size_t stage = 0; stage <= last; ++stage) {
        if (move_ends(stage, stage)) better = true;
        if (stage < last && move_ends(stage, last)) better = true;
      }
    }
    set_cuts(job_, best_);
    return std::move(job_);
  }

 private:
  // Above all it fits.
  using Score = std::pair<bool, double>;

  Score score() const {
    const MemoryNeeds needs = memory_needs(context_, job_);
    if (!why_not(needs, context_.cluster, rules_.memory_limit).empty()) {
      return {false, -needs.most()};
    }
    return {true,
            predict(context_.network, job_, context_.cluster, context_.constants, context_.software)
                .samples_per_second};
  }

  bool try_cuts(const std::vector<int>& ends) {
    if (left_ == 0 || !tried_.insert(ends).second) return false;
    --left_;
    set_cuts(job_, ends);
    const Score found = score();
    if (!best_.empty() && found <= score_) return false;
    best_ = ends;
    score_ = found;
    return true;
  }

  // Tries other ends of these stages, each moved by as many layers.
  bool move_ends(size_t first, size_t last) {
    const std::vector<int> before = best_;
    const int room_below = before[first] - (first == 0 ? 0 : before[first - 1]) - 1;
    const int room_above = before[last + 1] - before[last] - 1;
    bool better = false;
    for (int by = 1; by <= std::max(room_below, room_above); by *= 2) {
      for (const int moved : {-by, by}) {
        if (-moved > room_below || moved > room_above) continue;
        std::vector<int> ends = before;
        for (size_t stage = first; stage <= last; ++stage) ends[stage] += moved;
        if (try_cuts(ends)) better = true;
      }
    }
    return better;
  }

  const CostContext& context_;
  PlannedJob job_;
  const CutRules& rules_;
  size_t left_ = 0;  // simulations
  std::set<std::vector<int>> tried_;
  std::vector<int> best_;
  Score score_;
};

}  // namespace

PlannedJob cut_by_simulation(const CostContext& context, PlannedJob job, const CutRules& rules) {
  return CutSearch(context, std::move(job), rules).run();
}

}  // namespace millrace::planner
