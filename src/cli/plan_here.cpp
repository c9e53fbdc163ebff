#include "cli/plan_here.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/here_report.h"
#include "cli/measured_finalists.h"
#include "cli/progress.h"
#include "cli/standard_files.h"
#include "cli/subprocess.h"
#include "planner/cluster/processor_machine.h"
#include "profile/calibration.h"
#include "runtime/trace_file.h"

namespace millrace::cli {
namespace {

constexpr int kMostFinalists = 256;
constexpr int64_t kSteps = 16;  // to simulate, where the user names none
constexpr double kFewer = 4;    // samples, of the first measurement of the layers

// Those that do not fit stand last.
bool any_fits(const std::vector<profile::HereCandidate>& candidates) {
  return !candidates.empty() && candidates.front().fits;
}

class HerePlanner {
 public:
  HerePlanner(const CLI::App& command, const ClusterFlags& flags, const CheckFlags& check,
              const JobFlags& job_flags)
      : flags_(flags), check_(check), job_flags_(job_flags) {
    const int given = command.count("--devices") > 0 ? job_flags.plan.devices : 0;
    if (command.count("--devices") > 0 && given < 1) {
      fail_input("--devices is {}; give at least 1.", given);
    }
    batch_ = flags.global_batch > 0 ? flags.global_batch : job_flags.batch * std::max(1, given);
    set_counts(given);
    machine_ = planner::parse_cluster(
        in_child([&] { return planner::describe(described_cluster(flags.cluster)).dump(); }),
        "this machine");
    machine_.host_memory_bytes = static_cast<double>(available_memory());
    SearchSetup setup =
        search_setup(command, flags, job_flags, planner::divided(machine_, counts_.back()));
    inputs_ = std::move(setup.inputs);
    request_.search = setup.request;
    request_.search.global_batch = static_cast<double>(batch_);
    request_.search.fewer = false;  // every number of devices is asked for by itself
    request_.synchronise_batch_norm = job_flags.plan.synchronise_batch_norm;
  }

  HereOutcome run() {
    if (!flags_.no_measure) calibrate_costs();
    const bool spares_computing = !request_.search.recompute;
    if (spares_computing) request_.search.recompute = false;
    profile::HereCandidates candidates = gather();
    if (spares_computing && !any_fits(candidates.list)) {
      request_.search.recompute = {};
      candidates = gather();
    }
    HereOutcome outcome;
    outcome.model = inputs_.network.model;
    outcome.global_batch = static_cast<double>(batch_);
    outcome.tried = candidates.tried;
    outcome.others = std::move(candidates.list);
    if (!flags_.no_measure && any_fits(outcome.others)) {
      measure_finalists(outcome,
                        {.count = static_cast<size_t>(flags_.finalists),
                         .rounds = check_.rounds,
                         .memory = machine_.host_memory_bytes,
                         .job_of = [&](const profile::HereCandidate& one) { return job_of(one); }});
    }
    return outcome;
  }

  void write_trace(const MeasuredPlan& plan) const {
    predict_in_child(job_of(plan.candidate), {.rounds = check_.rounds}, {flags_.trace});
  }

  const planner::PlanInputs& inputs() const { return inputs_; }

  planner::PlanInputs inputs_for(int devices) const {
    planner::PlanInputs inputs = inputs_;
    inputs.cluster = cluster_of(devices);
    // What was measured on one device takes longer on a part of it.
    inputs.network =
        profile::slower(std::move(inputs.network), cluster_of(1).device.memory_bandwidth /
                                                       inputs.cluster.device.memory_bandwidth);
    return inputs;
  }

 private:
  void set_counts(int given) {
    const int cores = backend::available_cores();
    if (given > 0) {
      if (batch_ % given != 0) {
        fail_input(
            "--global-batch is {}, which cannot be divided over {} devices; give a multiple.",
            batch_, given);
      }
      counts_ = {given};
      return;
    }
    for (int count = 1; count <= cores; ++count) {
      const bool room = job_flags_.oversubscribe || count * job_flags_.threads <= cores;
      if (cores % count == 0 && batch_ % count == 0 && room) counts_.push_back(count);
    }
    if (counts_.empty()) counts_ = {1};
  }

  // The machine as so many devices.
  simulate::Cluster cluster_of(int devices) const {
    simulate::Cluster cluster = planner::divided(machine_, devices);
    const int shares = job_flags_.threads > 0
                           ? std::max(1, backend::available_cores() / job_flags_.threads)
                           : devices;
    cluster.device = planner::divided(machine_, shares).device;
    cluster.device.memory_bytes = inputs_.cluster.device.memory_bytes;
    return cluster;
  }

  train::TrainJob whole_job(double samples) const {
    JobFlags flags = job_flags_;
    flags.plan = {};
    flags.batch = std::max<int64_t>(1, std::llround(samples));
    train::TrainJob job = to_job(flags);
    job.steps = 1;
    train::check(job);
    return job;
  }

  profile::JobProfile measure_layers(const train::TrainJob& job) const {
    return profile::parse_job_profile(
        in_child([&] {
          ProgressPrinter messages(true);
          return profile::to_json(profile::profile_job(job, {.rounds = check_.rounds}, messages))
              .dump();
        }),
        "the profile");
  }

  // The whole network on one device, with few samples and with all of them.
  void calibrate_costs() {
    const double most = static_cast<double>(batch_);
    print_error("Measuring the layers of {} here.\n", inputs_.network.model);
    try {
      require_memory(whole_job(most), machine_.host_memory_bytes);
      const profile::JobProfile few =
          measure_layers(whole_job(std::min(most, std::max(2.0, most / kFewer))));
      profile::calibrate(inputs_.network, few, measure_layers(whole_job(most)));
      inputs_.software.straggling = 0;
    } catch (const std::runtime_error& error) {
      print_error("Layers could not be measured, formulas stand in for that: {}\n",
                  with_flags(marked_text(error)));
    }
  }

  profile::HereCandidates gather() {
    profile::HereCandidates all;
    for (const int count : counts_) {
      const planner::PlanInputs inputs = inputs_for(count);
      request_.search.devices = count;
      all.merge(profile::candidates_here(inputs.context(), request_));
    }
    return all;
  }

  train::TrainJob job_of(const profile::HereCandidate& candidate) const {
    JobFlags flags = job_flags_;
    flags.plan = {};
    const Json own = describe_flags(candidate.job);
    flags.batch = std::llround(own["--batch"].get<double>());
    flags.recompute = own["--recompute"].get<std::string>();
    if (own.contains("--head-parallel")) {
      flags.head.parallel = own["--head-parallel"].get<std::string>();
    }
    train::TrainJob job = to_job(flags);
    job.plan = candidate.plan;
    job.options.batch = std::llround(candidate.samples());
    if (job.steps == 0) job.steps = kSteps;
    job.epochs = 0;
    train::check(job);
    return job;
  }

  const ClusterFlags& flags_;
  const CheckFlags& check_;
  const JobFlags& job_flags_;
  int64_t batch_ = 1;
  std::vector<int> counts_;  // of devices
  simulate::Cluster machine_;
  planner::PlanInputs inputs_;
  profile::HereRequest request_;
};

// Writes the simulated timeline to `trace`, if there is one.
Json describe_unmeasured(const HereOutcome& outcome, const planner::PlanInputs& inputs,
                         const std::string& trace) {
  const profile::HereCandidate& chosen = outcome.others.front();
  const planner::Prediction prediction = planner::predict(inputs.context(), chosen.job);
  if (!trace.empty()) {
    runtime::write_trace(trace, simulate::trace_log(prediction.simulation, prediction.result),
                         true);
  }
  Json described = describe_prediction(chosen.job, prediction, inputs);
  described["plan"] = parallel::to_json(
      planner::plan_file_of(chosen.plan, chosen.job, inputs.network.model, "here"));
  described["search"] = describe_search(outcome);
  return described;
}

}  // namespace

bool plans_here(const ClusterFlags& flags) {
  const bool here =
      flags.cluster.empty() || flags.cluster == "here" || flags.cluster == "this-machine";
  const bool asks = !flags.sweep.empty() || flags.explain;  // many plans, none of them measured
  return flags.automatic && here && flags.system == "millrace" && !asks;
}

int run_here_plan(const CLI::App& command, const ClusterFlags& flags, const CheckFlags& check_flags,
                  const JobFlags& job, bool json) {
  check(check_flags);
  if (flags.finalists < 1 || flags.finalists > kMostFinalists) {
    fail_input("--finalists is {}; give 1 to {}.", flags.finalists, kMostFinalists);
  }
  HerePlanner planner(command, flags, check_flags, job);
  const HereOutcome outcome = planner.run();
  const bool measured = !outcome.plans.empty();
  if (!measured && !any_fits(outcome.others)) {
    const Json report = describe_search(outcome);
    fmt::print("{}", with_flags(json ? report.dump(2) + "\n" : format_search(report)));
    return kExitSuccess;
  }
  Json described;
  if (measured) {
    described = describe_choice(outcome, planner.inputs().network);
  } else {
    described = describe_unmeasured(outcome, planner.inputs_for(outcome.others.front().devices()),
                                    flags.trace);
  }
  add_price(described, {flags.price, job.epochs, job.steps});
  if (!flags.output.empty()) write_text(flags.output, described["plan"].dump(2) + "\n");
  if (!flags.trace.empty() && measured) planner.write_trace(outcome.plans.front());
  if (json) {
    fmt::print("{}\n", with_flags(described.dump(2)));
  } else {
    fmt::print("{}",
               with_flags(measured ? format_choice(described) : format_prediction(described)));
  }
  return kExitSuccess;
}

}  // namespace millrace::cli
