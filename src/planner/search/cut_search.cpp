#include "planner/search/cut_search.h"

#include <algorithm>
#include <optional>
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
constexpr size_t kLeastSimulated = 2;

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
    const simulate::Fabric fabric(context_.cluster);
    std::vector<Cuts> starts;
    for (auto& ends : likely_cuts(context_, job_, links_of(context_, job_, fabric))) {
      if (const std::optional<Score> found = scored(ends)) starts.push_back({*found, ends});
    }
    std::stable_sort(starts.begin(), starts.end(),
                     [](const Cuts& a, const Cuts& b) { return a.score > b.score; });
    Cuts best = starts.front();
    for (Cuts& start : starts) {
      climb(start);
      if (start.score > best.score) best = start;
    }
    set_cuts(job_, best.ends);
    return std::move(job_);
  }

 private:
  // Above all it fits.
  using Score = std::pair<bool, double>;

  struct Cuts {
    Score score;
    std::vector<int> ends;
  };

  // None if these were tried before, or nothing may be simulated any more.
  std::optional<Score> scored(const std::vector<int>& ends) {
    if (left_ == 0 || !tried_.insert(ends).second) return {};
    --left_;
    set_cuts(job_, ends);
    const MemoryNeeds needs = memory_needs(context_, job_);
    if (!why_not(needs, context_.cluster, rules_.memory_limit).empty()) {
      return Score{false, -needs.most()};
    }
    return Score{true, predict(context_, job_).samples_per_second};
  }

  void climb(Cuts& cuts) {
    const size_t last = job_.stages.size() - 2;
    for (bool better = true; better && left_ > 0;) {
      better = false;
      for (size_t stage = 0; stage <= last; ++stage) {
        if (move_ends(cuts, stage, stage)) better = true;
        if (stage < last && move_ends(cuts, stage, last)) better = true;
      }
    }
  }

  // Tries other ends of these stages, each moved by as many layers.
  bool move_ends(Cuts& cuts, size_t first, size_t last) {
    const std::vector<int> before = cuts.ends;
    const int room_below = before[first] - (first == 0 ? 0 : before[first - 1]) - 1;
    const int room_above = before[last + 1] - before[last] - 1;
    bool better = false;
    for (int by = 1; by <= std::max(room_below, room_above); by *= 2) {
      for (const int moved : {-by, by}) {
        if (-moved > room_below || moved > room_above) continue;
        std::vector<int> ends = before;
        for (size_t stage = first; stage <= last; ++stage) ends[stage] += moved;
        const std::optional<Score> found = scored(ends);
        if (!found || *found <= cuts.score) continue;
        cuts = {*found, std::move(ends)};
        better = true;
      }
    }
    return better;
  }

  const CostContext& context_;
  PlannedJob job_;
  const CutRules& rules_;
  size_t left_ = 0;  // simulations
  std::set<std::vector<int>> tried_;
};

}  // namespace

PlannedJob cut_by_simulation(const CostContext& context, PlannedJob job, const CutRules& rules) {
  return CutSearch(context, std::move(job), rules).run();
}

}  // namespace millrace::planner
