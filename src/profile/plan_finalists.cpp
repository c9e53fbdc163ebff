#include "profile/plan_finalists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/text.h"
#include "planner/cost/stage_cost.h"
#include "profile/calibration.h"

namespace millrace {
namespace {

constexpr size_t kByEstimate = 3;  // every third finalist is chosen by its estimate alone

std::vector<PipelineOrder> orders_for(const HereRequest& request) {
  if (request.search.order) return {*request.search.order};
  std::vector<PipelineOrder> orders = {PipelineOrder::flush};
  if (request.search.asynchronous) {
    orders.insert(orders.end(),
                  {PipelineOrder::one_by_one, PipelineOrder::stale, PipelineOrder::two_copies});
  }
  return orders;
}

// The schedules that run in this order, as far as the formulas can tell.
std::vector<ScheduleKind> schedules_for(const HereRequest& request, const PlannedJob& job) {
  if (job.stages.size() == 1) return {schedule_kind(job.order)};
  if (request.schedule) return {*request.schedule};
  if (job.order == PipelineOrder::flush) {
    return {ScheduleKind::one_f_one_b_flush, ScheduleKind::zero_bubble};
  }
  return {schedule_kind(job.order)};
}

// Filling and draining take a third where the weights' gradients fill the gaps.
double share_of_flush(ScheduleKind schedule, const PlannedJob& job) {
  if (schedule != ScheduleKind::zero_bubble) return 1;
  const auto idle = static_cast<double>(job.stages.size()) - 1;
  return (job.micro_batches + idle / 3) / (job.micro_batches + idle);
}

std::string shape_of(const PlannedJob& job, const Plan& plan) {
  std::string text = describe_shape(job);
  const std::string ordered = fmt::format(", {},", name_of(job.order));
  const size_t found = text.find(ordered);
  if (found != std::string::npos) {
    text.replace(found, ordered.size(), fmt::format(", {},", name_of(plan.schedule)));
  }
  if (!plan.cut_after.empty()) {
    text += fmt::format(", cut after {}", fmt::join(plan.cut_after, " and "));
  }
  return text;
}

class Gathering {
 public:
  Gathering(const CostContext& context, const HereRequest& request)
      : context_(context), request_(request) {}

  HereCandidates run() {
    SearchOutcome outcome = search_plans(context_, request_.search);
    for (const auto* results : {&outcome.plans, &outcome.others}) {
      for (const SearchResult& result : *results) add_result(result);
    }
    result_.tried = std::max(outcome.tried, result_.list.size());
    return std::move(result_);
  }

 private:
  void add_result(const SearchResult& result) {
    PlannedJob job = result.job;
    cut_behind_joined(context_.network, job);
    add(job, request_.search.global_batch / result.samples_per_second, result.verdict, result.fits);
    if (!result.fits || job.stages.size() == 1 || job.round_robin) return;
    for (const PipelineOrder order : orders_for(request_)) {
      if (order == job.order) continue;
      if (order == PipelineOrder::two_copies && job.micro_batches < std::ssize(job.stages))
        continue;
      PlannedJob sibling = job;
      sibling.order = order;
      if (seen_.contains(key_of(sibling, schedule_kind(order)))) continue;
      const Prediction prediction = predict(context_.network, sibling, context_.cluster,
                                            context_.constants, context_.software);
      add(sibling, request_.search.global_batch / prediction.samples_per_second, prediction.reason,
          prediction.fits);
    }
  }

  void add(const PlannedJob& job, double seconds, const std::string& reason, bool fits) {
    for (const ScheduleKind schedule : schedules_for(request_, job)) {
      if (!seen_.insert(key_of(job, schedule)).second) continue;
      HereCandidate candidate;
      candidate.job = job;
      candidate.plan = plan_for(job, schedule);
      candidate.shape = shape_of(job, candidate.plan);
      candidate.estimated_seconds = seconds * share_of_flush(schedule, job);
      candidate.fits = fits;
      if (!fits) candidate.reason = reason;
      set_memory(candidate);
      result_.list.push_back(std::move(candidate));
    }
  }

  Plan plan_for(const PlannedJob& job, ScheduleKind schedule) const {
    Plan plan = plan_of(context_.network, job, context_.cluster.devices_per_machine);
    plan.schedule = schedule;
    plan.sharding.synchronise_batch_norm = request_.synchronise_batch_norm;
    return plan;
  }

  std::string key_of(const PlannedJob& job, ScheduleKind schedule) const {
    return fmt::format("{} {} {}", to_json(plan_for(job, schedule)).dump(), job.recompute,
                       static_cast<int>(job.head.parallel));
  }

  void set_memory(HereCandidate& candidate) const {
    const PlannedJob& job = candidate.job;
    for (size_t stage = 0; stage < job.stages.size(); ++stage) {
      const double one = stage_memory(context_.network, job, static_cast<int>(stage),
                                      context_.cluster, context_.constants, context_.software)
                             .total();
      candidate.fullest = std::max(candidate.fullest, one);
      candidate.memory += one * static_cast<double>(job.stages[stage].devices.size());
    }
    if (!candidate.fits || candidate.memory <= request_.memory) return;
    candidate.fits = false;
    candidate.reason = fmt::format("does not fit: its devices need {} together, {} are free.",
                                   format_bytes(static_cast<uint64_t>(candidate.memory)),
                                   format_bytes(static_cast<uint64_t>(request_.memory)));
  }

  const CostContext& context_;
  const HereRequest& request_;
  std::set<std::string> seen_;
  HereCandidates result_;
};

void sort_by_estimate(std::vector<HereCandidate>& list) {
  std::stable_sort(list.begin(), list.end(), [](const HereCandidate& a, const HereCandidate& b) {
    return a.fits != b.fits ? a.fits : a.estimated_seconds < b.estimated_seconds;
  });
}

std::string devices_of(const HereCandidate& one) { return fmt::format("{}", one.devices()); }

std::string stages_of(const HereCandidate& one) {
  std::vector<size_t> replicas;
  for (const PlannedStage& stage : one.job.stages) replicas.push_back(stage.devices.size());
  return fmt::format("{} {}", devices_of(one), fmt::join(replicas, "-"));
}

std::string schedule_of(const HereCandidate& one) {
  return fmt::format("{} {}", stages_of(one),
                     one.job.stages.size() > 1 ? name_of(one.plan.schedule) : "");
}

// All but cuts, micro-batches and recomputation.
std::string kind_of(const HereCandidate& one) {
  return fmt::format("{} {} {} {}", schedule_of(one), one.job.round_robin, one.job.share_optimizer,
                     static_cast<int>(one.job.head.parallel));
}

}  // namespace

void HereCandidates::merge(HereCandidates other) {
  std::move(other.list.begin(), other.list.end(), std::back_inserter(list));
  tried += other.tried;
  sort_by_estimate(list);
}

HereCandidates candidates_here(const CostContext& context, const HereRequest& request) {
  HereCandidates found;
  found.merge(Gathering(context, request).run());
  return found;
}

std::vector<size_t> choose_finalists(const std::vector<HereCandidate>& candidates, size_t count) {
  std::set<size_t> chosen;
  using Kind = std::function<std::string(const HereCandidate&)>;
  // The first of each kind that has none among the chosen, and those that are chosen already.
  const auto take = [&](const Kind& kind, size_t most) {
    std::set<std::string> seen;
    for (const size_t i : chosen) seen.insert(kind(candidates[i]));
    for (size_t i = 0; i < candidates.size() && chosen.size() < most; ++i) {
      if (candidates[i].fits && seen.insert(kind(candidates[i])).second) chosen.insert(i);
    }
  };
  const Kind each = [](const HereCandidate& one) {
    return fmt::format("{} {}", to_json(one.plan).dump(), one.job.recompute);
  };
  take(each, count / kByEstimate);
  for (const Kind& kind :
       {Kind(devices_of), Kind(stages_of), Kind(schedule_of), Kind(kind_of), each}) {
    take(kind, count);
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<size_t> neighbours_of(const HereCandidate& plan,
                                  const std::vector<HereCandidate>& candidates) {
  std::vector<size_t> found;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const HereCandidate& other = candidates[i];
    const int count = plan.job.micro_batches, its_count = other.job.micro_batches;
    if (!other.fits || (its_count != 2 * count && 2 * its_count != count)) continue;
    if (kind_of(other) == kind_of(plan)) found.push_back(i);
  }
  return found;
}

}  // namespace millrace
