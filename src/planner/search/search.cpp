#include "planner/search/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "planner/cost/memory_needs.h"
#include "planner/search/candidates.h"
#include "planner/search/cut_search.h"

namespace millrace::planner {
namespace {

constexpr size_t kSimulated = 16;     // candidates by formula that are simulated
constexpr size_t kShown = 12;         // losers that are explained
constexpr size_t kCutAnew = 8;        // pipelines whose cuts are looked for by simulation
constexpr double kItemsOfCuts = 2e5;  // that the simulator runs for each of them
constexpr double kPromising = 0.5;    // of the best one's rate, for that
constexpr double kNothing = 1000;     // times as long as a stage takes that hardly works

struct Scored {
  Candidate candidate;
  double estimate = 0;
  double memory = 0;    // of the fullest device
  std::string refusal;  // why it does not fit
};

// Candidates of one kind differ only in cuts, micro-batches or recomputation.
std::string kind_of(const PlannedJob& job) {
  std::vector<size_t> replicas;
  for (const PlannedStage& stage : job.stages) replicas.push_back(stage.devices.size());
  return fmt::format("{} {} {} {} {}", fmt::join(replicas, "-"),
                     job.stages.size() > 1 ? parallel::name_of(job.schedule) : "",
                     static_cast<int>(job.head.parallel), job.round_robin, job.share_optimizer);
}

// What the time of a plan goes to.
std::string reason_for(const SearchResult& result, const Prediction& prediction) {
  std::vector<std::string> reasons;
  if (result.bubble > 0.05) {
    reasons.push_back(fmt::format("devices idle {:.0f} % of the time", result.bubble * 100));
  }
  double gradients = 0, updates = 0, largest = 0, smallest = 1e300;
  for (const StageCost& cost : prediction.costs) {
    gradients = std::max(gradients, cost.gradient_bytes());
    updates = std::max(updates, cost.update);
    const double seconds = cost.forward + cost.backward_seconds();
    largest = std::max(largest, seconds);
    smallest = std::min(smallest, seconds);
  }
  if (prediction.costs.size() > 1 && largest > 1.2 * smallest) {
    reasons.push_back(
        largest > kNothing * smallest
            ? "a stage of it computes next to nothing"
            : fmt::format("its slowest stage computes {:.1f} times as long as its fastest",
                          largest / smallest));
  }
  if (result.job.stages.front().devices.size() > 1) {
    reasons.push_back(
        fmt::format("{} of gradients to sum", format_bytes(static_cast<uint64_t>(gradients))));
  }
  if (result.job.recompute) reasons.emplace_back("computes activations twice");
  if (result.job.share_optimizer) reasons.emplace_back("gathers weights after each update");
  return fmt::format("{}", fmt::join(reasons, "; "));
}

bool are_same(const PlannedJob& a, const PlannedJob& b) {
  const auto same = [](const PlannedStage& one, const PlannedStage& other) {
    return one.devices == other.devices && one.begin == other.begin && one.end == other.end;
  };
  return describe_shape(a) == describe_shape(b) &&
         std::equal(a.stages.begin(), a.stages.end(), b.stages.begin(), b.stages.end(), same);
}

class Search {
 public:
  Search(const CostContext& context, const SearchRequest& request)
      : context_(context),
        request_(request),
        limit_(request.memory_limit > 0 ? request.memory_limit
                                        : context.cluster.device.memory_bytes) {}

  SearchOutcome run() {
    add_pipedream();
    std::vector<Scored> fitting, refused;
    for (Candidate& candidate : candidates(context_, request_)) {
      Scored scored = scored_by_memory(std::move(candidate));
      (scored.refusal.empty() ? fitting : refused).push_back(std::move(scored));
    }
    outcome_.tried = fitting.size() + refused.size();
    const auto by_estimate = [](const Scored& a, const Scored& b) {
      return a.estimate < b.estimate;
    };
    std::stable_sort(fitting.begin(), fitting.end(), by_estimate);
    std::stable_sort(refused.begin(), refused.end(), by_estimate);
    if (!fitting.empty() || !theirs_.empty()) simulate_best(fitting);
    explain_refused(refused);
    outcome_.judge(request_.allow_stale);
    return std::move(outcome_);
  }

 private:
  using Simulated = std::pair<SearchResult, Prediction>;

  Scored scored_by_memory(Candidate candidate) const {
    const MemoryNeeds needs = memory_needs(context_, candidate.job);
    Scored scored;
    scored.memory = needs.most();
    scored.refusal = why_not(needs, context_.cluster, limit_);
    scored.estimate = candidate.estimate;
    scored.candidate = std::move(candidate);
    return scored;
  }

  void add_pipedream() {
    const std::optional<PlannedJob> job = pipedream_job(context_, request_);
    if (!job) return;
    const Scored scored = scored_by_memory({*job, 1, true});
    Simulated simulated = simulated_result(scored);
    outcome_.pipedream = simulated.first;
    outcome_.pipedream->fits = scored.refusal.empty();
    if (!outcome_.pipedream->fits) {
      outcome_.pipedream->reason = scored.refusal;
    } else if (allows(request_, *job)) {
      theirs_.push_back(std::move(simulated));
    }
  }

  // The best by formula, and the best of every kind after them.
  void simulate_best(const std::vector<Scored>& fitting) {
    std::map<std::string, size_t> seen;
    std::vector<Simulated> simulated = std::move(theirs_);
    std::vector<const Scored*> skipped;  // the first of a kind
    for (size_t i = 0; i < fitting.size(); ++i) {
      const bool divided = fitting[i].candidate.pipedream;
      const size_t before = seen[kind_of(fitting[i].candidate.job) + (divided ? " divided" : "")]++;
      const bool first = before == 0 && (divided || simulated.size() < kSimulated + kShown);
      if (i < kSimulated || first) {
        simulated.push_back(simulated_result(fitting[i]));
      } else if (before == 0) {
        skipped.push_back(&fitting[i]);
      }
    }
    sort_by_rate(simulated);
    cut_anew(simulated);
    sort_by_rate(simulated);
    keep(simulated);
    for (const Scored* scored : skipped) explain_skipped(*scored, fitting.front().estimate);
  }

  static void sort_by_rate(std::vector<Simulated>& simulated) {
    std::stable_sort(simulated.begin(), simulated.end(), [](const auto& a, const auto& b) {
      return a.first.samples_per_second > b.first.samples_per_second;
    });
  }

  // Looks for better cuts of the fastest pipelines; those that PipeDream divided keep theirs.
  void cut_anew(std::vector<Simulated>& simulated) const {
    const double promising = kPromising * simulated.front().first.samples_per_second;
    size_t left = kCutAnew;
    for (Simulated& one : simulated) {
      const SearchResult& result = one.first;
      if (left == 0 || result.samples_per_second < promising) return;
      if (result.job.stages.size() < 2 || result.pipedream) continue;
      --left;
      Simulated better = simulated_result(scored_by_memory(
          {cut_by_simulation(context_, result.job, {limit_, kItemsOfCuts}), 0, false}));
      if (better.first.samples_per_second > result.samples_per_second) one = std::move(better);
    }
  }

  void keep(std::vector<Simulated>& simulated) {
    const PlannedJob* before = nullptr;
    for (auto& [result, prediction] : simulated) {
      // Searches for cuts may end at a plan that is there already.
      if (before != nullptr && are_same(*before, result.job)) continue;
      result.reason = reason_for(result, prediction);
      const bool best = outcome_.plans.size() < kMostPlans;
      if (!best && outcome_.others.size() >= kShown) return;
      std::vector<SearchResult>& list = best ? outcome_.plans : outcome_.others;
      list.push_back(result);
      before = &result.job;
    }
  }

  Simulated simulated_result(const Scored& scored) const {
    Prediction prediction = predict(context_, scored.candidate.job);
    SearchResult result = basic_result(scored);
    result.seconds_per_step = prediction.seconds_per_step;
    result.samples_per_second = prediction.samples_per_second;
    result.bubble = prediction.bubble;
    prediction.simulation = {};
    prediction.result = {};
    return {std::move(result), std::move(prediction)};
  }

  // With the formula's time.
  SearchResult basic_result(const Scored& scored) const {
    SearchResult result;
    result.job = scored.candidate.job;
    result.samples_per_second = request_.global_batch / scored.estimate;
    result.seconds_per_step = result.job.samples_per_step() / result.samples_per_second;
    result.memory = scored.memory;
    result.pipedream = scored.candidate.pipedream;
    return result;
  }

  void explain_skipped(const Scored& scored, double best) {
    SearchResult result = basic_result(scored);
    result.simulated = false;
    // Beside rates of the simulator.
    const double rate = outcome_.plans.front().samples_per_second * best / scored.estimate;
    result.seconds_per_step *= result.samples_per_second / rate;
    result.samples_per_second = rate;
    outcome_.others.push_back(std::move(result));
  }

  void explain_refused(const std::vector<Scored>& refused) {
    std::map<std::string, size_t> seen;
    for (const Scored& scored : refused) {
      if (seen[kind_of(scored.candidate.job)]++ > 0) continue;
      SearchResult result = basic_result(scored);
      result.fits = false;
      result.reason = scored.refusal;
      outcome_.others.push_back(std::move(result));
    }
  }

  static constexpr size_t kMostPlans = 5;

  const CostContext& context_;
  const SearchRequest& request_;
  const double limit_;
  std::vector<Simulated> theirs_;  // PipeDream's plan, if it may be chosen
  SearchOutcome outcome_;
};

}  // namespace

std::string describe_shape(const PlannedJob& job) {
  std::vector<size_t> replicas;
  for (const PlannedStage& stage : job.stages) replicas.push_back(stage.devices.size());
  std::string text;
  if (job.stages.size() == 1) {
    text = fmt::format("{} parallel on {}", parallel::name_of(job.parallelism), replicas.front());
    if (job.micro_batches > 1) text += fmt::format(", {} micro-batches", job.micro_batches);
  } else {
    const bool in_turn = job.schedule == parallel::ScheduleKind::interleaved;
    if (in_turn) replicas.resize(static_cast<size_t>(job.turns()));
    text = fmt::format("{} stages {}on {} devices, {}, {}", job.stages.size(),
                       in_turn ? "in turn " : "", fmt::join(replicas, "-"),
                       parallel::name_of(job.schedule),
                       job.micro_batches == 1 ? "1 micro-batch"
                                              : fmt::format("{} micro-batches", job.micro_batches));
  }
  using Parallel = PlannedHead::Parallel;
  if (job.head.parallel == Parallel::data) text += ", head dp";
  if (job.head.parallel == Parallel::model) text += ", head mp";
  if (job.head.parallel == Parallel::sampled) text += ", head pfc";
  if (job.round_robin) text += ", replicas in turn";
  if (job.share_optimizer) text += ", shared optimizer state";
  return job.recompute ? text + ", recompute" : text;
}

namespace {

// Of a plan of this rate, beside the best.
std::string verdict_of(const SearchResult& result, double best) {
  const double slower = 100 * (1 - result.samples_per_second / best);
  if (!result.fits) return "does not fit: " + result.reason;
  if (!result.simulated) {
    return fmt::format("about {:.0f} % slower by formula; not simulated.", slower);
  }
  return fmt::format("{:.1f} % slower{}{}.", slower, result.reason.empty() ? "" : "; ",
                     result.reason);
}

}  // namespace

void SearchOutcome::judge(bool allow_stale) {
  const double best = plans.empty() ? 0 : plans.front().samples_per_second;
  for (SearchResult& result : plans) result.verdict = verdict_of(result, best);
  for (SearchResult& result : others) result.verdict = verdict_of(result, best);
  if (!plans.empty()) plans.front().verdict = "the fastest that fits";
  if (!pipedream) return;
  const double faster = plans.empty() ? 0 : 100 * (pipedream->samples_per_second / best - 1);
  if (!pipedream->fits) {
    pipedream->verdict = verdict_of(*pipedream, best);
  } else if (plans.empty()) {
    pipedream->verdict = "not allowed here.";
  } else if (faster > 0) {
    const bool stale = !allow_stale && !pipedream->job.is_exact();
    pipedream->verdict = fmt::format(
        "{:.1f} % faster, but {}.", faster,
        stale ? "it trains on weights a few updates old: see ‹allow_stale›" : "not allowed here");
  } else {
    pipedream->verdict =
        faster == 0 ? "the best." : fmt::format("{:.1f} % slower than the best.", -faster);
  }
}

SearchOutcome search_plans(const CostContext& context, const SearchRequest& request) {
  if (request.devices < 1 || request.devices > context.cluster.devices()) {
    fail_input("‹devices› is {}, but cluster '{}' has {}.", request.devices, context.cluster.name,
               context.cluster.devices());
  }
  if (!(request.global_batch >= 1)) fail_input("The global batch must be at least 1.");
  if (request.trained && !request.fewer && std::fmod(request.global_batch, request.devices) != 0) {
    fail_input("{} samples cannot be divided over {} devices, each of which takes as many.",
               request.global_batch, request.devices);
  }
  if (request.schedule && !parallel::is_synchronous(*request.schedule) && !request.allow_stale) {
    fail_input(
        "‹schedule› {} trains on weights a few updates old; add ‹allow_stale› if that is wanted, "
        "or use {}.",
        parallel::name_of(*request.schedule), parallel::schedule_names(true));
  }
  SearchRequest divided = request;
  divided.divisions = divisions_for(context, request);
  return Search(context, divided).run();
}

}  // namespace millrace::planner
