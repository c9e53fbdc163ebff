#include "profile/plan_finalists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "planner/cost/memory_needs.h"
#include "profile/calibration.h"

namespace millrace::profile {
namespace {

constexpr size_t kByEstimate = 3;  // every third finalist is chosen by its estimate alone

// Those in which any pipeline runs whose devices have a stage each.
std::vector<parallel::ScheduleKind> schedules_for(const HereRequest& request) {
  if (request.search.schedule) return {*request.search.schedule};
  std::vector<parallel::ScheduleKind> kinds = {parallel::ScheduleKind::one_f_one_b_flush,
                                               parallel::ScheduleKind::zero_bubble};
  if (request.search.allow_stale) {
    kinds.insert(kinds.end(), {parallel::ScheduleKind::one_f_one_b, parallel::ScheduleKind::ssp,
                               parallel::ScheduleKind::two_bw});
  }
  return kinds;
}

std::string shape_of(const planner::PlannedJob& job, const parallel::Plan& plan) {
  std::string text = planner::describe_shape(job);
  if (!plan.cut_after.empty()) {
    text += fmt::format(", cut after {}", fmt::join(plan.cut_after, " and "));
  }
  return text;
}

class Gathering {
 public:
  Gathering(const planner::CostContext& context, const HereRequest& request)
      : context_(context), request_(request) {}

  HereCandidates run() {
    planner::SearchOutcome outcome = planner::search_plans(context_, request_.search);
    for (const auto* results : {&outcome.plans, &outcome.others}) {
      for (const planner::SearchResult& result : *results) add_result(result);
    }
    result_.tried = std::max(outcome.tried, result_.list.size());
    return std::move(result_);
  }

 private:
  void add_result(const planner::SearchResult& result) {
    planner::PlannedJob job = result.job;
    cut_behind_joined(context_.network, job);
    add(job, request_.search.global_batch / result.samples_per_second, result.verdict, result.fits);
    if (!result.fits || job.stages.size() == 1 || job.round_robin) return;
    if (job.schedule == parallel::ScheduleKind::interleaved) return;
    for (const parallel::ScheduleKind kind : schedules_for(request_)) {
      if (kind == job.schedule || kind == parallel::ScheduleKind::interleaved) continue;
      if (kind == parallel::ScheduleKind::two_bw && job.micro_batches < std::ssize(job.stages))
        continue;
      planner::PlannedJob sibling = job;
      sibling.schedule = kind;
      if (seen_.contains(key_of(sibling))) continue;
      const planner::Prediction prediction = planner::predict(context_, sibling);
      add(sibling, request_.search.global_batch / prediction.samples_per_second, prediction.reason,
          prediction.fits);
    }
  }

  void add(const planner::PlannedJob& job, double seconds, const std::string& reason, bool fits) {
    if (!seen_.insert(key_of(job)).second) return;
    HereCandidate candidate;
    candidate.job = job;
    candidate.plan = plan_for(job);
    candidate.shape = shape_of(job, candidate.plan);
    candidate.estimated_seconds = seconds;
    candidate.fits = fits;
    if (!fits) candidate.reason = reason;
    set_memory(candidate);
    result_.list.push_back(std::move(candidate));
  }

  parallel::Plan plan_for(const planner::PlannedJob& job) const {
    parallel::Plan plan =
        planner::plan_of(context_.network, job, context_.cluster.devices_per_machine);
    plan.sharding.synchronise_batch_norm = request_.synchronise_batch_norm;
    return plan;
  }

  std::string key_of(const planner::PlannedJob& job) const {
    return fmt::format("{} {} {}", parallel::to_json(plan_for(job)).dump(), job.recompute,
                       static_cast<int>(job.head.parallel));
  }

  void set_memory(HereCandidate& candidate) const {
    const planner::MemoryNeeds needs = planner::memory_needs(context_, candidate.job);
    candidate.fullest = needs.most();
    candidate.memory = needs.host;
    if (!candidate.fits) return;
    const std::string refusal =
        planner::why_not(needs, context_.cluster, context_.cluster.device.memory_bytes);
    candidate.fits = refusal.empty();
    if (!candidate.fits) candidate.reason = "does not fit: " + refusal;
  }

  const planner::CostContext& context_;
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
  for (const planner::PlannedStage& stage : one.job.stages)
    replicas.push_back(stage.devices.size());
  return fmt::format("{} {}", devices_of(one), fmt::join(replicas, "-"));
}

std::string schedule_of(const HereCandidate& one) {
  return fmt::format("{} {}", stages_of(one),
                     one.job.stages.size() > 1 ? parallel::name_of(one.plan.schedule) : "");
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

HereCandidates candidates_here(const planner::CostContext& context, const HereRequest& request) {
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
    return fmt::format("{} {}", parallel::to_json(one.plan).dump(), one.job.recompute);
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

}  // namespace millrace::profile
