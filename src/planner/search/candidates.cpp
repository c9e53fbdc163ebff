#include "planner/search/candidates.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/search/cuts.h"

namespace millrace::planner {
namespace {

constexpr int kMostStages = 64;
constexpr int kMostMicroBatches = 64;
constexpr int kMostInTurn = 64;    // devices whose turns are simulated one by one
constexpr int kFinestShares = 16;  // uneven shares step by this part of the devices

std::vector<PlannedStage> place(const std::vector<int>& shares) {
  std::vector<PlannedStage> stages;
  int next = 0;
  for (const int share : shares) {
    PlannedStage stage;
    for (int i = 0; i < share; ++i) stage.devices.push_back(next++);
    stages.push_back(std::move(stage));
  }
  return stages;
}

// Whether so many devices have whole samples of a step, where they need them.
bool divides(const SearchRequest& request, int devices) {
  return !request.trained || std::fmod(request.global_batch, devices) == 0;
}

// `turns`: how many placements take the stages in turn.
std::vector<parallel::ScheduleKind> schedules_for(const SearchRequest& request, size_t stages,
                                                  int turns) {
  if (stages == 1) return {parallel::ScheduleKind::one_f_one_b_flush};
  const bool in_turn = turns < static_cast<int>(stages);
  const auto fits = [&](parallel::ScheduleKind kind) {
    return in_turn == (kind == parallel::ScheduleKind::interleaved);
  };
  std::vector<parallel::ScheduleKind> kinds = {parallel::ScheduleKind::one_f_one_b_flush,
                                               parallel::ScheduleKind::zero_bubble,
                                               parallel::ScheduleKind::interleaved};
  if (request.allow_stale) {
    kinds.insert(kinds.end(), {parallel::ScheduleKind::two_bw, parallel::ScheduleKind::ssp});
  }
  if (request.schedule) kinds = {*request.schedule};
  std::erase_if(kinds, [&](parallel::ScheduleKind kind) { return !fits(kind); });
  return kinds;
}

std::vector<int> micro_batches_for(const SearchRequest& request, const std::vector<int>& shares,
                                   parallel::ScheduleKind kind, int turns, double least_samples) {
  const int most_replicas = *std::max_element(shares.begin(), shares.end());
  const int stages = static_cast<int>(shares.size());
  std::vector<int> counts;
  const int first = request.micro_batches.value_or(1);
  const int last = request.micro_batches.value_or(kMostMicroBatches);
  for (int count = first; count <= last; count *= 2) {
    if (request.global_batch / most_replicas / count < least_samples) break;
    if (std::fmod(request.global_batch, count) != 0) break;
    if (kind == parallel::ScheduleKind::two_bw && count < stages) continue;
    if (kind == parallel::ScheduleKind::ssp && count > 1) break;
    if (kind == parallel::ScheduleKind::interleaved && count % turns != 0) continue;
    if (kind == parallel::ScheduleKind::zero_bubble && count < 2) continue;
    if (request.head.parallel != PlannedHead::Parallel::none && count > 1) break;
    counts.push_back(count);
  }
  return counts;
}

// Who accepts sampled classes accepts all of them too.
std::vector<PlannedHead::Parallel> heads_for(const SearchRequest& request, size_t stages) {
  using Parallel = PlannedHead::Parallel;
  if (request.head.parallel == Parallel::none) return {Parallel::none};
  if (stages > 1) return {};
  if (request.head_fixed) return {request.head.parallel};
  if (request.head.parallel != Parallel::sampled) return {Parallel::data, Parallel::model};
  return {Parallel::data, Parallel::model, Parallel::sampled};
}

bool has_replicas(const PlannedJob& job) {
  return std::any_of(job.stages.begin(), job.stages.end(),
                     [](const PlannedStage& stage) { return stage.devices.size() > 1; });
}

std::vector<bool> choices(const std::optional<bool>& wanted, bool possible) {
  if (!possible) return {false};
  return wanted ? std::vector<bool>{*wanted} : std::vector<bool>{false, true};
}

// Turns of the slowest stage that a step takes: a flushed pipeline also fills and drains, in a
// third of the time where gradients of weights fill the gaps.
double slots_of(const PlannedJob& job) {
  const double devices = job.turns() > 0 ? job.turns() : static_cast<double>(job.stages.size());
  const double work = job.micro_batches * static_cast<double>(job.stages.size()) / devices;
  if (!parallel::is_synchronous(job.schedule)) return work;
  return work + (devices - 1) / (job.schedule == parallel::ScheduleKind::zero_bubble ? 3 : 1);
}

// Seconds per step: the slowest stage sets the pace.
double estimate(const CostContext& context, const PlannedJob& job, const StageTimes& times,
                const StageLinks& links) {
  const SoftwareConstants& software = context.software;
  const double samples = job.samples_per_step();
  double slowest = 0, rest = 0;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    const PlannedStage& stage = job.stages[i];
    const int replicas = static_cast<int>(stage.devices.size());
    const double again = job.recompute ? 4.0 / 3 : 1.0;
    const double compute = times.compute(stage.begin, stage.end, replicas);
    const double rate = replicas > 1 ? links.rings[i] : 1.0;
    const double whole = times.seconds(stage.begin, stage.end, replicas, rate);
    slowest = std::max(
        slowest, job.round_robin ? whole + (again - 1) * compute / replicas : compute * again);
    if (i + 1 < job.stages.size()) {
      const double bytes = context.network.layers[stage.end - 1].cut.at(samples) /
                           job.micro_batches * job.boundary_size();
      slowest = std::max(slowest, bytes * links.boundaries[i]);
    }
    rest = std::max(rest, whole - compute);
  }
  if (job.round_robin) return slowest;
  const bool late = !parallel::is_synchronous(job.schedule) && software.stale_overlap > 0.9;
  return slots_of(job) * slowest + (late ? 0 : rest);
}

}  // namespace

std::vector<std::vector<int>> device_shares(int devices, int layers) {
  std::set<std::vector<int>> shares = {{devices}};
  for (int stages = 2; stages <= std::min({devices, layers, kMostStages}); ++stages) {
    if (devices % stages == 0) shares.insert(std::vector<int>(stages, devices / stages));
  }
  const int grain = std::max(1, devices / kFinestShares);
  if (layers >= 2) {
    for (int last = grain; last < devices; last += grain) shares.insert({devices - last, last});
  }
  if (layers >= 3) {
    for (int last = grain; 2 * last < devices; last *= 2) {
      const int rest = devices - last;
      if (rest >= 2) shares.insert({rest - rest / 2, rest / 2, last});
    }
  }
  return {shares.begin(), shares.end()};
}

PlannedJob basic_job(const SearchRequest& request) {
  PlannedJob job;
  job.batch = request.mini_batch();
  job.precision = request.precision;
  job.wire = request.wire;
  job.real_data = request.real_data;
  job.optimizer_states = request.optimizer_states;
  job.head = request.head;
  return job;
}

std::vector<Division> divisions_for(const CostContext& context, const SearchRequest& request) {
  if (request.divisions) return *request.divisions;
  return pipedream_divisions(context, basic_job(request),
                             {request.devices, request.straight, request.fewer});
}

namespace {

class Enumeration {
 public:
  Enumeration(const CostContext& context, const SearchRequest& request)
      : context_(context), request_(request), fabric_(context.cluster) {}

  std::vector<Candidate> run() {
    if (request_.parallelism.value_or(parallel::Parallelism::data) != parallel::Parallelism::data) {
      return {};
    }
    for (const int devices : device_counts()) {
      PlannedJob job = basic_job(request_);
      job.batch = request_.global_batch / devices;
      for (const std::vector<int>& shares : shares_for(devices)) {
        job.stages = place(shares);
        add_shape(job, false);
        add_in_turn(job, shares);
      }
    }
    for (const Division& division : divisions_for(context_, request_)) {
      PlannedJob job = basic_job(request_);
      job.stages = division;
      job.batch = request_.global_batch / job.devices();
      if (division.size() > 1 && divides(request_, job.devices())) add_shape(job, true);
    }
    return std::move(result_);
  }

 private:
  // All of the devices, or also one less, a half, a quarter ...
  std::vector<int> device_counts() const {
    std::set<int> counts;
    const auto add = [&](int count) {
      if (count > 0 && divides(request_, count)) counts.insert(count);
    };
    add(request_.devices);
    if (request_.fewer) add(request_.devices - 1);
    for (int count = request_.devices / 2; request_.fewer && count > 0; count /= 2) add(count);
    return {counts.begin(), counts.end()};
  }

  std::vector<std::vector<int>> shares_for(int devices) const {
    const int layers = static_cast<int>(context_.network.layers.size());
    if (!request_.straight) return device_shares(devices, layers);
    if (devices > std::min(layers, kMostStages)) return {};
    return {std::vector<int>(static_cast<size_t>(devices), 1)};
  }

  // Devices in equal shares take two stages each, or four.
  void add_in_turn(PlannedJob job, const std::vector<int>& shares) {
    if (shares.size() < 2 || shares.front() != shares.back()) return;
    const int layers = static_cast<int>(context_.network.layers.size());
    const std::vector<PlannedStage> once = job.stages;
    for (const int times : {2, 4}) {
      if (static_cast<int>(once.size()) * times > std::min(layers, kMostStages)) return;
      job.stages.clear();
      for (int i = 0; i < times; ++i) {
        job.stages.insert(job.stages.end(), once.begin(), once.end());
      }
      add_shape(job, false);
    }
  }

  // All schedules and micro-batches of these stages; `divided` ones keep their cuts.
  void add_shape(PlannedJob job, bool divided) {
    std::vector<int> shares;
    for (const PlannedStage& stage : job.stages) {
      shares.push_back(static_cast<int>(stage.devices.size()));
    }
    const int turns = job.turns();
    links_ = links_of(context_, job, fabric_);
    for (const parallel::ScheduleKind kind : schedules_for(request_, shares.size(), turns)) {
      job.schedule = kind;
      for (const int count :
           micro_batches_for(request_, shares, kind, turns, context_.network.least_samples)) {
        job.micro_batches = count;
        add_cut(job, divided);
      }
    }
    if (turns < static_cast<int>(shares.size())) return;
    add_turns(job, *std::max_element(shares.begin(), shares.end()), divided);
  }

  // Replicas that take whole mini-batches in turn; a round of the widest stage is a global batch.
  void add_turns(PlannedJob job, int most_replicas, bool divided) {
    const bool allowed = request_.schedule
                             ? *request_.schedule == parallel::ScheduleKind::one_f_one_b
                             : request_.allow_stale;
    if (!allowed || job.stages.size() < 2 || !has_replicas(job)) return;
    if (request_.micro_batches.value_or(1) != 1) return;
    if (job.devices() > kMostInTurn) return;
    job.batch = request_.global_batch / most_replicas;
    if (job.batch < 1) return;
    if (request_.trained && std::fmod(job.batch, job.devices()) != 0) return;
    job.schedule = parallel::ScheduleKind::one_f_one_b;
    job.round_robin = true;
    job.micro_batches = 1;
    add_cut(job, divided);
  }

  void add_cut(PlannedJob job, bool divided) {
    if (!divided) set_cuts(job, cut_by_cost(context_, job, links_));
    for (const bool share :
         choices(request_.share_optimizer, has_replicas(job) && !job.round_robin)) {
      job.share_optimizer = share;
      const StageTimes times(context_, job);
      for (const PlannedHead::Parallel parallel : heads_for(request_, job.stages.size())) {
        job.head.parallel = parallel;
        for (const bool recompute : choices(request_.recompute, true)) {
          job.recompute = recompute;
          add(job, times, divided);
        }
      }
    }
  }

  void add(const PlannedJob& job, const StageTimes& times, bool divided) {
    const double head = head_cost(context_, job).compute;
    const double seconds = estimate(context_, job, times, links_) + head;
    result_.push_back({job, seconds * request_.global_batch / job.samples_per_step(), divided});
  }

  const CostContext& context_;
  const SearchRequest& request_;
  const simulate::Fabric fabric_;
  StageLinks links_;  // of the shape at hand
  std::vector<Candidate> result_;
};

}  // namespace

std::optional<PlannedJob> pipedream_job(const CostContext& context, const SearchRequest& request) {
  const std::vector<Division> divisions = divisions_for(context, request);
  if (divisions.empty()) return std::nullopt;
  PlannedJob job = basic_job(request);
  job.stages = divisions.front();
  if (job.stages.size() == 1) return job;
  // Samples of a device in a step; what is trained has whole ones.
  const double samples = request.mini_batch() / job.devices();
  const double counted = request.trained ? std::ceil(samples) : samples;
  job.schedule = parallel::ScheduleKind::one_f_one_b;
  job.round_robin = has_replicas(job);
  job.batch = job.round_robin ? counted * job.devices() : counted;
  return job;
}

bool allows(const SearchRequest& request, const PlannedJob& pipedream) {
  if (request.recompute.value_or(false) || request.micro_batches.value_or(1) != 1) return false;
  if (request.parallelism.value_or(parallel::Parallelism::data) != parallel::Parallelism::data) {
    return false;
  }
  const bool shares = request.share_optimizer.value_or(false);
  if (shares && has_replicas(pipedream) && !pipedream.round_robin) return false;
  if (pipedream.stages.size() == 1) return divides(request, pipedream.devices());
  return request.head.parallel == PlannedHead::Parallel::none &&
         (request.schedule ? *request.schedule == parallel::ScheduleKind::one_f_one_b
                           : request.allow_stale);
}

std::vector<Candidate> candidates(const CostContext& context, const SearchRequest& request) {
  return Enumeration(context, request).run();
}

}  // namespace millrace::planner
