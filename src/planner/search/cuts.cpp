#include "planner/search/cuts.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "planner/cost/boundary.h"

namespace millrace::planner {

// Times of operators are close to straight lines in the batch; two points give the line.
StageTimes::StageTimes(const CostContext& context, const PlannedJob& job)
    : round_robin_(job.round_robin),
      share_optimizer_(job.share_optimizer),
      samples_(job.samples_per_step() / job.micro_batches) {
  const auto& [network, cluster, constants, software] = context;  // which no lambda may capture
  const double slower = straggling(job.devices(), software);
  const auto seconds_at = [&](const LayerWork& layer, double samples) {
    return seconds_of(layer, samples, context.cluster.device, job.precision,
                      context.constants.operators, context.software);
  };
  const double low = std::max(1.0, samples_ / job.devices()), high = 2 * low;
  fixed_ = per_sample_ = parameters_ = updates_ = {0.0};
  for (const LayerWork& layer : network.layers) {
    const PassSeconds fewer = seconds_at(layer, low), more = seconds_at(layer, high);
    const double first = (fewer.forward + fewer.backward) * slower;
    const double second = (more.forward + more.backward) * slower;
    const double slope = (second - first) / (high - low);
    per_sample_.push_back(per_sample_.back() + slope);
    fixed_.push_back(fixed_.back() + std::max(0.0, first - slope * low));
    parameters_.push_back(parameters_.back() + layer.parameters);
    updates_.push_back(updates_.back() + fewer.update);
  }
  bytes_per_parameter_ = gradient_size(job, software);
  exposed_ = 1 - software.overlap;
  if (job.schedule == parallel::ScheduleKind::ssp) exposed_ *= 1 - software.stale_overlap;
  collective_efficiency_ = software.collective_efficiency;
}

double StageTimes::compute(int begin, int end, int replicas) const {
  const double samples = round_robin_ ? samples_ : samples_ / replicas;
  return sum(fixed_, begin, end) + sum(per_sample_, begin, end) * samples;
}

double StageTimes::seconds(int begin, int end, int replicas, double link_rate) const {
  const double parameters = sum(parameters_, begin, end);
  const double working = compute(begin, end, replicas);
  double reduce = 0;
  if (replicas > 1) {
    reduce = 2.0 * (replicas - 1) / replicas * parameters * bytes_per_parameter_ /
             (link_rate * collective_efficiency_);
  }
  double update = sum(updates_, begin, end);
  if (round_robin_) return (working + update + reduce) / replicas;
  double exposed = exposed_;
  if (share_optimizer_ && replicas > 1) {  // half of the traffic follows the update
    update /= replicas;
    exposed = (1 + exposed_) / 2;
  }
  return std::max(working + update, reduce * (1 - exposed)) + reduce * exposed;
}

StageLinks links_of(const CostContext& context, const PlannedJob& job,
                    const simulate::Fabric& fabric) {
  StageLinks links;
  for (const PlannedStage& stage : job.stages) {
    links.rings.push_back(fabric.ring(stage.devices).rate);
  }
  for (size_t i = 0; i + 1 < job.stages.size(); ++i) {
    const PlannedStage &from = job.stages[i], &to = job.stages[i + 1];
    const bool stays = from.devices == to.devices;
    links.boundaries.push_back(stays ? 0
                                     : boundary_seconds(from, to, 1, context.cluster, fabric,
                                                        context.software.transfer_efficiency));
  }
  return links;
}

std::vector<int> cut_by_cost(const CostContext& context, const PlannedJob& job) {
  return cut_by_cost(context, job, links_of(context, job, simulate::Fabric(context.cluster)));
}

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Seconds of the stages of a job and of what they send each other, wherever it is cut.
class CutCosts {
 public:
  CutCosts(const CostContext& context, const PlannedJob& job, const StageLinks& links)
      : job_(job), links_(links), times_(context, job), crossing_{0.0} {
    for (const LayerWork& layer : context.network.layers) {
      crossing_.push_back(layer.cut.at(job.samples_per_step()) / job.micro_batches *
                          job.boundary_size());
    }
    if (stages() > layers()) {
      fail_input("There are {} stages for the {} operators of '{}'; use fewer.", stages(), layers(),
                 context.network.model);
    }
  }

  int stages() const { return static_cast<int>(job_.stages.size()); }
  int layers() const { return static_cast<int>(crossing_.size()) - 1; }

  double of_stage(int stage, int begin, int end) const {
    const auto place = static_cast<size_t>(stage);
    const int replicas = static_cast<int>(job_.stages[place].devices.size());
    return times_.seconds(begin, end, replicas, links_.rings[place]);
  }

  // Of what the stage that begins here is sent.
  double of_message(int stage, int begin) const {
    if (stage == 0 || links_.boundaries.empty()) return 0;
    return crossing_[static_cast<size_t>(begin)] *
           links_.boundaries[static_cast<size_t>(stage) - 1];
  }

 private:
  const PlannedJob& job_;
  const StageLinks& links_;
  const StageTimes times_;
  std::vector<double> crossing_;  // bytes, by where the later stage begins
};

struct Cuts {
  double seconds = 0;
  std::vector<int> ends;
};

// The cuts for which `join` (of the seconds of the stages before, of one stage, and of the message
// to it) is least, of those with no stage or message above `limit`. There must be some.
template <typename Join>
Cuts least_cuts(const CutCosts& costs, double limit, Join&& join) {
  const int layers = costs.layers(), stages = costs.stages();
  // best[e]: of the stages so far, which together end at layer e.
  std::vector<double> best(static_cast<size_t>(layers) + 1, kNever);
  best[0] = 0;
  std::vector<std::vector<int>> begins;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<double> next(best.size(), kNever);
    std::vector<int> begin_of(best.size(), 0);
    for (int end = stage + 1; end <= layers; ++end) {
      for (int begin = end - 1; begin >= stage; --begin) {
        const double own = costs.of_stage(stage, begin, end);
        if (own >= next[end] || own > limit) break;  // and longer stages are slower still
        const double message = costs.of_message(stage, begin);
        if (message > limit) continue;
        const double joined = join(best[begin], own, message);
        if (joined < next[end]) {
          next[end] = joined;
          begin_of[end] = begin;
        }
      }
    }
    best = std::move(next);
    begins.push_back(std::move(begin_of));
  }
  Cuts cuts{best.back(), std::vector<int>(static_cast<size_t>(stages))};
  int end = layers;
  for (int stage = stages - 1; stage >= 0; --stage) {
    cuts.ends[stage] = end;
    end = begins[stage][end];
  }
  return cuts;
}

Cuts even_cuts(const CutCosts& costs) {
  return least_cuts(costs, kNever, [](double before, double own, double message) {
    return std::max({before, own, message});
  });
}

}  // namespace

std::vector<int> cut_by_cost(const CostContext& context, const PlannedJob& job,
                             const StageLinks& links) {
  return even_cuts(CutCosts(context, job, links)).ends;
}

std::vector<std::vector<int>> likely_cuts(const CostContext& context, const PlannedJob& job,
                                          const StageLinks& links) {
  constexpr double kUneven[] = {1, 1.1, 1.3, 2, kNever};
  const CutCosts costs(context, job, links);
  const Cuts even = even_cuts(costs);
  std::vector<std::vector<int>> likely = {even.ends};
  for (const double uneven : kUneven) {
    const Cuts cuts = least_cuts(
        costs, even.seconds * uneven,
        [](double before, double own, double message) { return before + own + message; });
    if (std::find(likely.begin(), likely.end(), cuts.ends) == likely.end()) {
      likely.push_back(cuts.ends);
    }
  }
  return likely;
}

void set_cuts(PlannedJob& job, const std::vector<int>& ends) {
  for (size_t stage = 0; stage < job.stages.size(); ++stage) {
    job.stages[stage].begin = stage == 0 ? 0 : ends[stage - 1];
    job.stages[stage].end = ends[stage];
  }
}

}  // namespace millrace::planner
