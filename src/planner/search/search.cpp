#include "planner/search/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "planner/search/candidates.h"

namespace millrace {
namespace {

constexpr size_t kSimulated = 16;  // candidates by formula that are simulated
constexpr size_t kShown = 12;      // losers that are explained

struct Scored {
  Candidate candidate;
  double estimate = 0;
  double memory = 0;
  int fullest = 0;
};

double fullest_device(const NetworkWork& network, const PlannedJob& job, const Cluster& cluster,
                      const CostConstants& constants, const SoftwareConstants& software,
                      int& stage) {
  double most = 0;
  for (int i = 0; i < static_cast<int>(job.stages.size()); ++i) {
    const double total = stage_memory(network, job, i, cluster, constants, software).total();
    if (total > most) {
      most = total;
      stage = i;
    }
  }
  return most;
}

// Candidates of one kind differ only in cuts, micro-batches or recomputation.
std::string kind_of(const PlannedJob& job) {
  std::vector<size_t> replicas;
  for (const PlannedStage& stage : job.stages) replicas.push_back(stage.devices.size());
  return fmt::format("{} {} {}", fmt::join(replicas, "-"),
                     job.stages.size() > 1 ? name_of(job.order) : "",
                     static_cast<int>(job.head.parallel));
}

std::string why_slower(const SearchResult& result, const Prediction& prediction, double best) {
  std::string text = fmt::format("{:.1f} % slower", (result.seconds_per_step / best - 1) * 100);
  if (result.bubble > 0.05)
    text += fmt::format("; devices idle {:.0f} % of the time", result.bubble * 100);
  double gradients = 0, updates = 0, largest = 0, smallest = 1e300;
  for (const StageCost& cost : prediction.costs) {
    gradients = std::max(gradients, cost.gradient_bytes());
    updates = std::max(updates, cost.update);
    const double seconds = cost.forward + cost.backward_seconds();
    largest = std::max(largest, seconds);
    smallest = std::min(smallest, seconds);
  }
  if (prediction.costs.size() > 1 && largest > 1.2 * smallest) {
    text += fmt::format("; its slowest stage computes {:.1f} times as long as its fastest",
                        largest / smallest);
  }
  if (result.job.stages.front().devices.size() > 1) {
    text += fmt::format("; {} of gradients to sum", format_bytes(static_cast<uint64_t>(gradients)));
  }
  if (result.job.recompute) text += "; computes activations twice";
  return text + ".";
}

class Search {
 public:
  Search(const NetworkWork& network, const SearchRequest& request, const Cluster& cluster,
         const CostConstants& constants, const SoftwareConstants& software)
      : network_(network),
        request_(request),
        cluster_(cluster),
        constants_(constants),
        software_(software),
        limit_(request.memory_limit > 0 ? request.memory_limit : cluster.device.memory_bytes) {}

  SearchOutcome run() {
    std::vector<Scored> fitting, refused;
    for (Candidate& candidate : candidates(network_, request_, cluster_, constants_, software_)) {
      Scored scored;
      scored.memory =
          fullest_device(network_, candidate.job, cluster_, constants_, software_, scored.fullest);
      scored.estimate = candidate.estimate;
      scored.candidate = std::move(candidate);
      (scored.memory <= limit_ ? fitting : refused).push_back(std::move(scored));
    }
    outcome_.tried = fitting.size() + refused.size();
    const auto by_estimate = [](const Scored& a, const Scored& b) {
      return a.estimate < b.estimate;
    };
    std::stable_sort(fitting.begin(), fitting.end(), by_estimate);
    std::stable_sort(refused.begin(), refused.end(), by_estimate);
    simulate_best(fitting);
    explain_refused(refused);
    return std::move(outcome_);
  }

 private:
  // The best by formula, and the best of every kind after them.
  void simulate_best(const std::vector<Scored>& fitting) {
    std::map<std::string, size_t> seen;
    std::vector<std::pair<SearchResult, Prediction>> simulated;
    for (size_t i = 0; i < fitting.size(); ++i) {
      const size_t before = seen[kind_of(fitting[i].candidate.job)]++;
      const bool promising =
          i < kSimulated || (before == 0 && simulated.size() < kSimulated + kShown);
      if (!promising && !fitting[i].candidate.pipedream) continue;
      simulated.push_back(simulated_result(fitting[i]));
    }
    std::stable_sort(simulated.begin(), simulated.end(), [](const auto& a, const auto& b) {
      return a.first.seconds_per_step < b.first.seconds_per_step;
    });
    for (size_t i = 0; i < simulated.size(); ++i) {
      auto& [result, prediction] = simulated[i];
      const double best = simulated.front().first.seconds_per_step;
      result.verdict = i == 0 ? "the fastest that fits" : why_slower(result, prediction, best);
      if (i < kMostPlans) {
        outcome_.plans.push_back(std::move(result));
      } else if (outcome_.others.size() < kShown) {
        outcome_.others.push_back(std::move(result));
      }
    }
  }

  std::pair<SearchResult, Prediction> simulated_result(const Scored& scored) const {
    Prediction prediction =
        predict(network_, scored.candidate.job, cluster_, constants_, software_);
    SearchResult result;
    result.job = scored.candidate.job;
    result.seconds_per_step = prediction.seconds_per_step;
    result.samples_per_second = prediction.samples_per_second;
    result.bubble = prediction.bubble;
    result.memory = scored.memory;
    result.pipedream = scored.candidate.pipedream;
    prediction.simulation = {};
    prediction.result = {};
    return {std::move(result), std::move(prediction)};
  }

  void explain_refused(const std::vector<Scored>& refused) {
    std::map<std::string, size_t> seen;
    size_t shown = 0;
    for (const Scored& scored : refused) {
      if (seen[kind_of(scored.candidate.job)]++ > 0 || shown++ >= kShown) continue;
      SearchResult result;
      result.job = scored.candidate.job;
      result.seconds_per_step = scored.estimate;
      result.samples_per_second = request_.global_batch / scored.estimate;
      result.memory = scored.memory;
      result.fits = false;
      result.pipedream = scored.candidate.pipedream;
      result.verdict =
          fmt::format("does not fit: stage {} needs {}, a device has {}.", scored.fullest,
                      format_bytes(static_cast<uint64_t>(scored.memory)),
                      format_bytes(static_cast<uint64_t>(limit_)));
      outcome_.others.push_back(std::move(result));
    }
  }

  static constexpr size_t kMostPlans = 5;

  const NetworkWork& network_;
  const SearchRequest& request_;
  const Cluster& cluster_;
  const CostConstants& constants_;
  const SoftwareConstants& software_;
  const double limit_;
  SearchOutcome outcome_;
};

}  // namespace

std::string describe_shape(const PlannedJob& job) {
  std::vector<size_t> replicas;
  for (const PlannedStage& stage : job.stages) replicas.push_back(stage.devices.size());
  std::string text;
  if (job.stages.size() == 1) {
    text = fmt::format("data parallel on {}", replicas.front());
    if (job.micro_batches > 1) text += fmt::format(", {} micro-batches", job.micro_batches);
  } else {
    text = fmt::format("{} stages on {} devices, {}, {} micro-batches", job.stages.size(),
                       fmt::join(replicas, "-"), name_of(job.order), job.micro_batches);
  }
  using Parallel = PlannedHead::Parallel;
  if (job.head.parallel == Parallel::data) text += ", head dp";
  if (job.head.parallel == Parallel::model) text += ", head mp";
  if (job.head.parallel == Parallel::sampled) text += ", head pfc";
  return job.recompute ? text + ", recompute" : text;
}

SearchOutcome search_plans(const NetworkWork& network, const SearchRequest& request,
                           const Cluster& cluster, const CostConstants& constants,
                           const SoftwareConstants& software) {
  if (request.devices < 1 || request.devices > cluster.devices()) {
    fail_input("--devices is {}, but cluster '{}' has {}.", request.devices, cluster.name,
               cluster.devices());
  }
  if (!(request.global_batch >= 1)) fail_input("The global batch must be at least 1.");
  return Search(network, request, cluster, constants, software).run();
}

}  // namespace millrace
