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
  Search(const CostContext& context, const SearchRequest& request, std::vector<SearchResult> beside)
      : context_(context),
        request_(request),
        limit_(request.memory_limit > 0 ? request.memory_limit
                                        : context.cluster.device.memory_bytes) {
    outcome_.tried = most_beside_ = beside.size();
    for (SearchResult& result : beside) {
      (result.fits ? beside_ : refused_beside_).push_back(std::move(result));
    }
  }

  SearchOutcome run() {
    add_pipedream();
    std::vector<Candidate> fitting, refused;
    for (Candidate& candidate : candidates(context_, request_)) {
      weigh(candidate);
      (candidate.refusal.empty() ? fitting : refused).push_back(std::move(candidate));
    }
    outcome_.tried += fitting.size() + refused.size();
    const auto by_estimate = [](const Candidate& a, const Candidate& b) {
      return a.estimate < b.estimate;
    };
    std::stable_sort(fitting.begin(), fitting.end(), by_estimate);
    std::stable_sort(refused.begin(), refused.end(), by_estimate);
    if (!fitting.empty() || !beside_.empty()) simulate_best(fitting);
    explain_refused(refused);
    std::move(refused_beside_.begin(), refused_beside_.end(), std::back_inserter(outcome_.others));
    outcome_.judge(request_.allow_stale);
    return std::move(outcome_);
  }

 private:
  void weigh(Candidate& candidate) const {
    const MemoryNeeds needs = memory_needs(context_, candidate.job);
    candidate.memory = needs.most();
    candidate.refusal = why_not(needs, context_.cluster, limit_);
  }

  void add_pipedream() {
    const std::optional<PlannedJob> job = pipedream_job(context_, request_);
    if (!job) return;
    Candidate theirs{*job, 1, true};
    weigh(theirs);
    SearchResult simulated = simulated_result(theirs);
    outcome_.pipedream = simulated;
    outcome_.pipedream->fits = theirs.refusal.empty();
    outcome_.pipedream->reason = theirs.refusal;
    if (theirs.refusal.empty() && allows(request_, *job)) beside_.push_back(std::move(simulated));
  }

  // The best by formula, and the best of every kind after them.
  void simulate_best(const std::vector<Candidate>& fitting) {
    std::map<std::string, size_t> seen;
    std::vector<SearchResult> simulated = std::move(beside_);
    std::vector<const Candidate*> skipped;  // the first of a kind
    for (size_t i = 0; i < fitting.size(); ++i) {
      const bool divided = fitting[i].pipedream;
      const size_t before = seen[kind_of(fitting[i].job) + (divided ? " divided" : "")]++;
      const bool first =
          before == 0 && (divided || simulated.size() < kSimulated + kShown + most_beside_);
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
    for (const Candidate* one : skipped) explain_skipped(*one, fitting.front().estimate);
  }

  static void sort_by_rate(std::vector<SearchResult>& simulated) {
    std::stable_sort(simulated.begin(), simulated.end(), [](const auto& a, const auto& b) {
      return a.samples_per_second > b.samples_per_second;
    });
  }

  // Looks for better cuts of the fastest pipelines; those that PipeDream divided keep theirs.
  void cut_anew(std::vector<SearchResult>& simulated) const {
    const double promising = kPromising * simulated.front().samples_per_second;
    size_t left = kCutAnew;
    for (SearchResult& result : simulated) {
      if (left == 0 || result.samples_per_second < promising) return;
      if (result.job.stages.size() < 2 || result.pipedream) continue;
      --left;
      Candidate better{cut_by_simulation(context_, result.job, {limit_, kItemsOfCuts})};
      weigh(better);
      SearchResult again = simulated_result(better);
      if (again.samples_per_second > result.samples_per_second) result = std::move(again);
    }
  }

  // Divided layers are a kind of their own, which is always shown.
  void keep(const std::vector<SearchResult>& simulated) {
    const PlannedJob* before = nullptr;
    size_t shown = 0;
    for (const SearchResult& result : simulated) {
      // Searches for cuts may end at a plan that is there already.
      if (before != nullptr && are_same(*before, result.job)) continue;
      const bool best = outcome_.plans.size() < kMostPlans;
      const bool divides = result.job.parallelism != parallel::Parallelism::data;
      if (!best && !divides && ++shown > kShown) continue;
      (best ? outcome_.plans : outcome_.others).push_back(result);
      before = &result.job;
    }
  }

  SearchResult simulated_result(const Candidate& candidate) const {
    const Prediction prediction = predict(context_, candidate.job);
    SearchResult result = result_of(candidate.job, prediction);
    result.memory = candidate.memory;
    result.fits = true;
    result.pipedream = candidate.pipedream;
    result.reason = reason_for(result, prediction);
    return result;
  }

  // With the formula's time.
  SearchResult basic_result(const Candidate& candidate) const {
    SearchResult result;
    result.job = candidate.job;
    result.samples_per_second = request_.global_batch / candidate.estimate;
    result.seconds_per_step = result.job.samples_per_step() / result.samples_per_second;
    result.memory = candidate.memory;
    result.pipedream = candidate.pipedream;
    return result;
  }

  void explain_skipped(const Candidate& candidate, double best) {
    SearchResult result = basic_result(candidate);
    result.simulated = false;
    // Beside rates of the simulator.
    const double rate = outcome_.plans.front().samples_per_second * best / candidate.estimate;
    result.seconds_per_step *= result.samples_per_second / rate;
    result.samples_per_second = rate;
    outcome_.others.push_back(std::move(result));
  }

  void explain_refused(const std::vector<Candidate>& refused) {
    std::map<std::string, size_t> seen;
    for (const Candidate& candidate : refused) {
      if (seen[kind_of(candidate.job)]++ > 0) continue;
      SearchResult result = basic_result(candidate);
      result.fits = false;
      result.reason = candidate.refusal;
      outcome_.others.push_back(std::move(result));
    }
  }

  static constexpr size_t kMostPlans = 5;

  const CostContext& context_;
  const SearchRequest& request_;
  const double limit_;
  // Plans that are not among the candidates; PipeDream's is one if it may be chosen.
  std::vector<SearchResult> beside_, refused_beside_;
  size_t most_beside_ = 0;
  SearchOutcome outcome_;
};

}  // namespace

SearchResult result_of(const PlannedJob& job, const Prediction& prediction) {
  SearchResult result;
  result.job = job;
  result.seconds_per_step = prediction.seconds_per_step;
  result.samples_per_second = prediction.samples_per_second;
  result.bubble = prediction.bubble;
  result.memory =
      *std::max_element(prediction.device_memory.begin(), prediction.device_memory.end());
  result.fits = prediction.fits;
  result.reason = prediction.reason;
  return result;
}

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

SearchOutcome search_plans(const CostContext& context, const SearchRequest& request,
                           std::vector<SearchResult> beside) {
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
  return Search(context, divided, std::move(beside)).run();
}

}  // namespace millrace::planner
