#include "cli/plan_cluster.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/device.h"
#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/cluster_report.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/progress.h"
#include "planner/search/cut_search.h"
#include "planner/search/cuts.h"
#include "planner/search/explain.h"
#include "planner/search/sweep.h"
#include "profile/machine.h"
#include "report/sweep_picture.h"
#include "train/head_advice.h"
#include "train/plan.h"

namespace millrace::cli {
namespace {

// The job without its placement, which is read apart.
JobFlags without_plan(JobFlags flags) {
  flags.plan = {};
  return flags;
}

// The machine's measured speed instead of an estimate.
void measure(simulate::Cluster& cluster) {
  if (cluster.name != "this-machine") return;
  backend::Device device({.threads = 0});
  const train::MachineSpeed speed = train::measure_speed(device);
  cluster.device.fp32_operations = speed.operations_per_second / cluster.devices_per_machine;
  cluster.device.memory_bandwidth = speed.bytes_per_second / cluster.devices_per_machine;
  cluster.source = "hwloc; rates measured now";
}

}  // namespace

simulate::Cluster described_cluster(const std::string& name) {
  if (name == "here") {
    ProgressPrinter messages(true);
    simulate::Cluster cluster = profile::cluster_here(messages);
    cluster.devices_in_host_memory = true;
    cluster.host_memory_bytes = static_cast<double>(host_memory());
    return cluster;
  }
  simulate::Cluster cluster =
      planner::find_cluster(name.empty() ? "this-machine" : name, "--cluster");
  measure(cluster);
  return cluster;
}

namespace {

// Everything that is known before a plan is chosen.
class ClusterPlanner {
 public:
  // On `cluster`, or on the one that the flags name.
  ClusterPlanner(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job_flags,
                 const simulate::Cluster* cluster = nullptr)
      : command_(command),
        flags_(flags),
        job_flags_(with_plan_file(job_flags)),
        job_(to_job(without_plan(job_flags_))) {
    inputs_.constants = flags.constants.empty()
                            ? planner::builtin_constants()
                            : planner::parse_constants(read_text(flags.constants), flags.constants);
    inputs_.software = inputs_.constants.system(flags.system, "--as");
    inputs_.cluster = cluster != nullptr ? *cluster : described_cluster(flags.cluster);
    if (job_.device_memory > 0) {
      inputs_.cluster.device.memory_bytes = static_cast<double>(job_.device_memory);
    }
    set_head();
    inputs_.network = planner::work_of(job_.model, job_.options);
    inputs_.divide = [model = job_.model,
                      options = job_.options](const planner::SharedWork& shared) {
      return planner::work_of(model, options, shared);
    };
    devices_ = command.count("--devices") > 0 ? job_flags.plan.devices : inputs_.cluster.devices();
    if (devices_ < 1 || devices_ > inputs_.cluster.devices()) {
      fail_input("--devices is {}, but cluster '{}' has {}.", devices_, inputs_.cluster.name,
                 inputs_.cluster.devices());
    }
    if (!flags.output.empty()) require_writable(flags.output, "--output");
    if (!flags.trace.empty()) require_writable(flags.trace, "--trace");
    if (!flags.csv.empty()) require_writable(flags.csv, "--csv");
    if (!flags.picture.empty()) require_writable(flags.picture, "--picture");
  }

  planner::PlannedJob given() const {
    const parallel::Plan plan = given_plan();
    require_predictable(plan);
    planner::PlannedJob job = basic();
    job.parallelism = plan.sharding.parallelism;
    const int layers = static_cast<int>(inputs_.network.layers.size());
    for (auto& devices : planner::devices_on(plan.stages, inputs_.cluster.machines,
                                             inputs_.cluster.devices_per_machine, "--placement")) {
      job.stages.push_back({std::move(devices), 0, layers});
    }
    job.micro_batches = static_cast<int>(plan.micro_batches);
    if (job.stages.size() > 1) job.schedule = plan.schedule;
    job.fixed_order = plan.static_scheduling;
    job.round_robin = plan.round_robin;
    job.share_optimizer = plan.share_optimizer;
    check_combination(job);
    // PipeDream's mini-batch goes whole to one device; a plan and `train` count samples per device.
    const bool counted_whole = flags_.system == "pipedream" && job_flags_.plan.plan_file.empty();
    if (job.round_robin && !counted_whole) job.batch *= job.devices();
    job.recompute = job_.recompute == passes::RecomputePolicy::all;
    cut(job, plan);
    return job;
  }

  planner::SearchRequest request() const {
    const planner::PlannedJob basis = basic();
    planner::SearchRequest request;
    request.devices = devices_;
    request.global_batch =
        flags_.global_batch > 0 ? static_cast<double>(flags_.global_batch) : basis.batch * devices_;
    request.precision = basis.precision;
    request.wire = basis.wire;
    request.real_data = basis.real_data;
    request.optimizer_states = basis.optimizer_states;
    request.head = basis.head;
    request.head_fixed = job_flags_.typed.contains("--head-parallel");
    request.allow_stale = flags_.allow_stale;
    request.fewer = command_.count("--devices") == 0 && flags_.sweep.empty();
    if (command_.count("--schedule") > 0) {
      request.schedule = parallel::parse_schedule(job_flags_.plan.schedule);
    }
    if (command_.count("--recompute") > 0 && job_.recompute != passes::RecomputePolicy::automatic) {
      request.recompute = job_.recompute == passes::RecomputePolicy::all;
    }
    if (command_.count("--share-optimizer") > 0) request.share_optimizer = true;
    if (command_.count("--parallel") > 0) {
      request.parallelism = parallel::parse_parallelism(job_flags_.plan.parallel);
    }
    if (command_.count("--microbatches") > 0) {
      request.micro_batches = static_cast<int>(to_plan(job_flags_.plan, 1).micro_batches);
    }
    return request;
  }

  planner::SearchOutcome searched() const { return planner::search(inputs_, request()); }

  planner::PlanQuestion question() const {
    planner::PlanQuestion question{inputs_, request(), {}};
    if (!flags_.automatic) question.given = given();
    return question;
  }

  const planner::PlanInputs& inputs() const { return inputs_; }

  planner::CostContext context() const { return inputs_.context(); }

 private:
  static void require_predictable(const parallel::Plan& plan) {
    if (!plan.sharding.layers.empty()) {
      fail_input("--plan divides layers by name, which is predicted by 'plan --predict' alone.");
    }
    if (plan.sharding.synchronise_batch_norm) {
      fail_input(
          "--plan says synchronise_batch_norm, which the model of costs of a described cluster "
          "does not know; 'plan --predict' does.");
    }
  }

  void check_combination(planner::PlannedJob& job) const {
    if (job.stages.size() == 1) {
      if (job.round_robin && command_.count("--replicas") > 0) {
        fail_input("--replicas roundrobin is predicted for several stages only; use split.");
      }
      job.round_robin = false;
      return;
    }
    if (job.round_robin &&
        (job.schedule != parallel::ScheduleKind::one_f_one_b || job.micro_batches > 1)) {
      fail_input("--replicas roundrobin goes with --schedule 1f1b and one micro-batch.");
    }
    if (job.head.parallel != planner::PlannedHead::Parallel::none) {
      fail_input("--head-parallel goes with one stage; leave out --placement.");
    }
  }

  // What the flags or the plan's file say, with the habits of the system for what they do not.
  parallel::Plan given_plan() const {
    PlanFlags flags = job_flags_.plan;
    flags.devices = 0;
    if (flags.stage_weights == "profile") flags.stage_weights = "auto";
    const bool pipedream = flags_.system == "pipedream";
    if (command_.count("--schedule") == 0 && (pipedream || flags_.system == "oneflow")) {
      flags.schedule = pipedream ? "1f1b" : "ssp";
    }
    if (command_.count("--replicas") == 0 && pipedream && flags.schedule == "1f1b") {
      flags.replicas = "roundrobin";
    }
    parallel::Plan plan = to_plan(flags, 1);
    if (flags.placement.empty() && flags.plan_file.empty()) {
      const int count = inputs_.cluster.devices_per_machine;
      plan.stages = {parallel::Placement{}};
      for (int i = 0; i < devices_; ++i) plan.stages[0].devices.push_back({i / count, i % count});
    }
    parallel::check(plan, static_cast<int64_t>(job_flags_.batch) *
                              (plan.round_robin ? 1 : static_cast<int64_t>(plan.devices().size())));
    return plan;
  }

  void set_head() {
    const HeadFlags& flags = job_flags_.head;
    if (flags.head.empty() && !job_flags_.typed.contains("--head-parallel")) return;
    using Parallel = planner::PlannedHead::Parallel;
    constexpr Parallel kParallels[] = {Parallel::data, Parallel::model, Parallel::sampled};
    head_.parallel = kParallels[choose("--head-parallel", flags.parallel, {"dp", "mp", "pfc"})];
    if (!(flags.sample_rate > 0 && flags.sample_rate <= 1)) {
      fail_input("--sample-rate is {}; it must be above 0 and at most 1.", flags.sample_rate);
    }
    if (flags_.automatic && !job_flags_.typed.contains("--head-parallel") &&
        command_.count("--sample-rate") > 0) {
      head_.parallel = Parallel::sampled;  // allowed, beside the exact ones
    }
    head_.sample_rate = flags.sample_rate;
    head_.classes = static_cast<double>(job_.options.classes);
    job_.options.classes = 2;  // the head replaces the network's own classifier
    job_.options.head.reset();
  }

  planner::PlannedJob basic() const {
    planner::PlannedJob job;
    job.batch = static_cast<double>(job_flags_.batch);
    job.precision = job_.precision.type;
    job.wire = job_.precision.communication;
    job.real_data = job_.data.source != "synthetic";
    job.optimizer_states =
        static_cast<int>(graph::optimizer_named(job_.optimizer.name).states.size());
    job.head = head_;
    return job;
  }

  void cut(planner::PlannedJob& job, const parallel::Plan& plan) const {
    if (job.stages.size() == 1) return;
    if (!plan.cut_after.empty()) {
      planner::set_cuts(job, planner::cut_after(inputs_.network, plan.cut_after, "--cut-after"));
    } else if (!plan.stage_weights.empty()) {
      planner::set_cuts(
          job, planner::cut_by_operators(inputs_.network, plan.stage_weights, "--stage-weights"));
    } else {
      job = planner::cut_by_simulation(context(), std::move(job),
                                       {inputs_.cluster.device.memory_bytes});
    }
  }

  const CLI::App& command_;
  const ClusterFlags& flags_;
  const JobFlags job_flags_;
  train::TrainJob job_;
  planner::PlanInputs inputs_;
  planner::PlannedHead head_;
  int devices_ = 1;
};

}  // namespace

SearchSetup search_setup(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                         const simulate::Cluster& cluster) {
  const ClusterPlanner planner(command, flags, job, &cluster);
  return {planner.inputs(), planner.request()};
}

namespace {

// The same job with its head in each of the three ways.
void add_advice(const planner::PlannedJob& job, const planner::PlanInputs& inputs,
                Json& described) {
  using Parallel = planner::PlannedHead::Parallel;
  if (job.head.parallel == Parallel::none || job.stages.size() != 1) return;
  std::vector<train::HeadChoice> choices;
  for (const auto& [planned, parallel] : {std::pair(Parallel::data, graph::HeadParallel::dp),
                                          std::pair(Parallel::model, graph::HeadParallel::mp),
                                          std::pair(Parallel::sampled, graph::HeadParallel::pfc)}) {
    planner::PlannedJob other = job;
    other.head.parallel = planned;
    const planner::Prediction prediction = planner::predict(inputs.context(), other);
    choices.push_back({parallel, prediction.samples_per_second, prediction.device_memory.front(),
                       prediction.fits});
  }
  described["head"] = train::to_json(choices);
  described["advice"] =
      train::advise_head({static_cast<int64_t>(job.head.classes), job.head.sample_rate,
                          job.devices(), inputs.cluster.device.memory_bytes},
                         choices);
}

}  // namespace

namespace {

int run_sweep(const planner::PlanQuestion& question, const ClusterFlags& flags, bool json) {
  const planner::SweepAxis axis = planner::parse_sweep(flags.sweep, "--sweep");
  Json described = planner::describe(axis, planner::sweep(question, axis, "--sweep"), flags.price);
  described["source"] = source_of(question.inputs);
  const simulate::Cluster& cluster = question.inputs.cluster;
  const double most = *std::max_element(axis.values.begin(), axis.values.end());
  if (axis.kind == planner::SweepAxis::Kind::devices && most > cluster.devices()) {
    described["note"] = fmt::format(
        "Beyond the {} devices of '{}' there are more machines like its own, joined by its "
        "network.",
        cluster.devices(), cluster.name);
  }
  if (!flags.csv.empty()) write_text(flags.csv, with_flags(planner::sweep_csv(described)));
  if (!flags.picture.empty())
    write_text(flags.picture, with_flags(report::sweep_picture(described)));
  std::string text = json ? described.dump(2) + "\n" : planner::format_sweep(described);
  if (!json) {
    text += described["source"] == "published"
                ? "By a formula whose constants were fitted to published results.\n"
                : "By a formula whose constants are guesses.\n";
    if (described.contains("note")) text += described["note"].get<std::string>() + "\n";
  }
  fmt::print("{}", with_flags(text));
  return kExitSuccess;
}

}  // namespace

int run_cluster_plan(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                     bool json) {
  const ClusterPlanner planner(command, flags, job);
  planner::PlanInputs inputs = planner.inputs();
  if (!flags.sweep.empty()) return run_sweep(planner.question(), flags, json);
  planner::PlannedJob chosen;
  Json report;
  if (flags.automatic) {
    const planner::SearchOutcome outcome = planner.searched();
    if (outcome.plans.empty()) {
      report = describe_search(outcome, inputs);
      fmt::print("{}", with_flags(json ? report.dump(2) + "\n" : format_search(report)));
      return kExitSuccess;
    }
    chosen = outcome.plans.front().job;
    report = describe_search(outcome, inputs);
  } else {
    chosen = planner.given();
  }
  inputs.network = inputs.network_of(chosen);
  if (chosen.stages.size() == 1) {
    chosen.stages[0].end = static_cast<int>(inputs.network.layers.size());
  }
  const planner::Prediction prediction = planner::predict(inputs.context(), chosen);
  Json described = describe_prediction(chosen, prediction, inputs);
  if (command.count("--schedule") > 0) described["plan"]["schedule"] = job.plan.schedule;
  if (!report.is_null()) add_search(described, std::move(report));
  add_advice(chosen, inputs, described);
  add_price(described, {flags.price, job.epochs, job.steps});
  if (flags.explain)
    described["explanation"] = planner::describe(planner::explain(planner.question(), chosen));
  deliver(described, prediction, {flags.output, flags.trace, json});
  return kExitSuccess;
}

}  // namespace millrace::cli
