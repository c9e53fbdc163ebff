#include "planner/search/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "planner/search/candidates.h"

namespace millrace::planner {
namespace {

constexpr int kMostDividing = 64;  // devices

PlanAnswer answer_of(const SearchResult& result) {
  return {result.job,
          describe_shape(result.job),
          result.seconds_per_step,
          result.samples_per_second,
          result.memory,
          result.fits};
}

// So many devices in one stage, in every way that divides its layers.
void add_dividing_jobs(const SearchRequest& request, int devices, std::vector<PlannedJob>& jobs) {
  PlannedJob job = basic_job(request);
  job.batch = request.global_batch / devices;
  job.stages.emplace_back();
  job.stages[0].devices.resize(static_cast<size_t>(devices));
  std::iota(job.stages[0].devices.begin(), job.stages[0].devices.end(), 0);
  for (const parallel::Parallelism parallelism :
       {parallel::Parallelism::hybrid, parallel::Parallelism::model}) {
    if (request.parallelism.value_or(parallelism) != parallelism) continue;
    job.parallelism = parallelism;
    for (const bool recompute : {false, true}) {
      if (request.recompute.value_or(recompute) != recompute) continue;
      job.recompute = recompute;
      jobs.push_back(job);
    }
  }
}

// All devices, and where some may be left idle a half, a quarter ...
std::vector<PlannedJob> dividing_jobs(const PlanInputs& inputs, const SearchRequest& request) {
  const bool possible = inputs.divide && request.micro_batches.value_or(1) == 1 &&
                        !request.straight && !request.share_optimizer.value_or(false) &&
                        request.head.parallel == PlannedHead::Parallel::none;
  std::vector<PlannedJob> jobs;
  for (int devices = request.devices; possible && devices > 1; devices /= 2) {
    const bool fills = request.global_batch / devices >= inputs.network.least_samples;
    if (devices <= kMostDividing && fills && std::fmod(request.global_batch, devices) == 0) {
      add_dividing_jobs(request, devices, jobs);
    }
    if (!request.fewer) break;
  }
  return jobs;
}

}  // namespace

NetworkWork PlanInputs::network_of(const PlannedJob& job) const {
  const auto members = static_cast<int>(job.stages.front().devices.size());
  if (job.parallelism == parallel::Parallelism::data || members < 2 || !divide) return network;
  return divide({job.parallelism, members, std::llround(job.samples_per_step())});
}

Prediction predict(const PlanInputs& inputs, const PlannedJob& job) {
  const NetworkWork network = inputs.network_of(job);
  PlannedJob whole = job;
  if (whole.stages.size() == 1) {
    whole.stages.front().begin = 0;
    whole.stages.front().end = static_cast<int>(network.layers.size());
  }
  return predict(CostContext{network, inputs.cluster, inputs.constants, inputs.software}, whole);
}

SearchOutcome search(const PlanInputs& inputs, const SearchRequest& request) {
  std::vector<SearchResult> dividing;
  for (const PlannedJob& job : dividing_jobs(inputs, request)) {
    try {
      dividing.push_back(result_of(job, predict(inputs, job)));
      if (dividing.back().fits) dividing.back().reason = "waits for what divided layers exchange";
    } catch (const InputError&) {  // the layers cannot be divided over so many
    }
  }
  const SearchOutcome outcome = search_plans(inputs.context(), request, std::move(dividing));
  const double least = inputs.network.least_samples;
  if (outcome.tried == 0 && !outcome.pipedream && request.global_batch < least) {
    fail_input(
        "'{}' needs at least {} samples on a device, for batch norms that see one value of each; "
        "use a larger ‹batch›.",
        inputs.network.model, least);
  }
  if (outcome.tried == 0 && (request.parallelism || request.micro_batches)) {
    fail_input(
        "No plan of {} samples on {} devices is as asked for; leave out ‹parallel› or "
        "‹microbatches›.",
        request.global_batch, request.devices);
  }
  return outcome;
}

PlanAnswer answer(const PlanQuestion& question) {
  if (question.given) {
    return answer_of(result_of(*question.given, predict(question.inputs, *question.given)));
  }
  const SearchOutcome outcome = search(question.inputs, question.request);
  if (!outcome.plans.empty()) return answer_of(outcome.plans.front());
  PlanAnswer none;
  none.shape = outcome.others.empty() ? "no plan" : outcome.others.front().verdict;
  return none;
}

PlanQuestion with_devices(PlanQuestion question, int devices, std::string_view flag) {
  simulate::Cluster& cluster = question.inputs.cluster;
  if (devices < 1) fail_input("{} asks for {} devices; it must be at least 1.", flag, devices);
  if (devices > cluster.devices()) {
    if (!(cluster.network.bandwidth > 0)) {
      fail_input("{} asks for {} devices, but cluster '{}' has {} and names no network for more.",
                 flag, devices, cluster.name, cluster.devices());
    }
    const int each = cluster.devices_per_machine;
    cluster.machines = (devices + each - 1) / each;
  }
  if (question.given) {
    if (question.given->stages.size() > 1) {
      fail_input("{} needs ‹auto›: the stages of ‹placement› are on devices of their own.", flag);
    }
    std::vector<int>& all = question.given->stages.front().devices;
    all.resize(static_cast<size_t>(devices));
    std::iota(all.begin(), all.end(), 0);
    return question;
  }
  const double batch = question.request.mini_batch();
  question.request.devices = devices;
  question.request.global_batch = batch * devices;
  return question;
}

PlanQuestion with_batch(PlanQuestion question, double batch) {
  if (question.given) question.given->batch = batch;
  question.request.global_batch = batch * question.request.devices;
  return question;
}

PlanQuestion with_bandwidth(PlanQuestion question, double bandwidth) {
  simulate::Cluster& cluster = question.inputs.cluster;
  if (cluster.machines > 1) {
    cluster.network.bandwidth = bandwidth;
    return question;
  }
  for (auto& [name, link] : cluster.classes) link.bandwidth = bandwidth;
  return question;
}

PlanQuestion with_faster_links(PlanQuestion question, double times) {
  simulate::Cluster& cluster = question.inputs.cluster;
  cluster.network.bandwidth *= times;
  for (auto& [name, link] : cluster.classes) link.bandwidth *= times;
  return question;
}

PlanQuestion with_precision(PlanQuestion question, graph::DataType precision) {
  question.request.precision = precision;
  if (question.given) question.given->precision = precision;
  return question;
}

PlanQuestion with_faster_devices(PlanQuestion question, double arithmetic, double memory) {
  OperatorConstants& reached = question.inputs.constants.operators;
  for (double* share : {&reached.convolution, &reached.convolution3, &reached.pointwise,
                        &reached.linear, &reached.half_convolution, &reached.half_linear}) {
    *share *= arithmetic;
  }
  reached.memory *= memory;
  return question;
}

}  // namespace millrace::planner
