#include "cli/plan_cluster.h"

#include <fmt/format.h>

#include "backend/device.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cluster_report.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "planner/search/cuts.h"
#include "profile/machine.h"
#include "train/head_advice.h"
#include "train/plan.h"

namespace millrace {
namespace {

constexpr const char* kClusterGroup = "On a described cluster";

std::string text_of(const CLI::App& command, const char* name, const std::string& fallback = "") {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option == nullptr || option->count() == 0 ? fallback : option->as<std::string>();
}

DataType precision_of(const CLI::App& command) {
  return precision_type(text_of(command, "--precision", "fp32"));
}

// The job without its placement, which is read apart.
JobFlags without_plan(JobFlags flags) {
  flags.plan = {};
  return flags;
}

// The machine's measured speed instead of an estimate.
void measure(Cluster& cluster) {
  if (cluster.name != "this-machine") return;
  Device device({.threads = 0});
  const MachineSpeed speed = measure_speed(device);
  cluster.device.fp32_operations = speed.operations_per_second / cluster.devices_per_machine;
  cluster.device.memory_bandwidth = speed.bytes_per_second / cluster.devices_per_machine;
  cluster.source = "hwloc; rates measured now";
}

}  // namespace

Cluster described_cluster(const std::string& name) {
  if (name == "here") {
    ProgressPrinter messages(true);
    return cluster_here(messages);
  }
  Cluster cluster = find_cluster(name.empty() ? "this-machine" : name, "--cluster");
  measure(cluster);
  return cluster;
}

namespace {

// Everything that is known before a plan is chosen.
class ClusterPlanner {
 public:
  // On `cluster`, or on the one that the flags name.
  ClusterPlanner(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job_flags,
                 const Cluster* cluster = nullptr)
      : command_(command),
        flags_(flags),
        job_flags_(job_flags),
        job_(to_job(without_plan(job_flags))),
        plans_here_(cluster != nullptr) {
    inputs_.constants = flags.constants.empty()
                            ? builtin_constants()
                            : parse_constants(read_text(flags.constants), flags.constants);
    inputs_.software = inputs_.constants.system(flags.system, "--as");
    inputs_.cluster = cluster != nullptr ? *cluster : described_cluster(flags.cluster);
    if (job_.device_memory > 0) {
      inputs_.cluster.device.memory_bytes = static_cast<double>(job_.device_memory);
    }
    set_head();
    inputs_.network = work_of(job_.model, job_.options);
    devices_ = command.count("--devices") > 0 ? job_flags.plan.devices : inputs_.cluster.devices();
    if (devices_ < 1 || devices_ > inputs_.cluster.devices()) {
      fail_input("--devices is {}, but cluster '{}' has {}.", devices_, inputs_.cluster.name,
                 inputs_.cluster.devices());
    }
    if (!flags.output.empty()) require_writable(flags.output, "--output");
    if (!flags.trace.empty()) require_writable(flags.trace, "--trace");
  }

  PlannedJob given() const {
    const Plan plan = given_plan();
    require_predictable(plan);
    PlannedJob job = basic();
    const int layers = static_cast<int>(inputs_.network.layers.size());
    for (auto& devices : devices_on(plan.stages, inputs_.cluster.machines,
                                    inputs_.cluster.devices_per_machine, "--placement")) {
      job.stages.push_back({std::move(devices), 0, layers});
    }
    job.micro_batches = static_cast<int>(plan.micro_batches);
    job.order = job.stages.size() > 1 ? order_of(plan.schedule) : PipelineOrder::flush;
    job.fixed_order = plan.static_scheduling;
    job.round_robin = plan.round_robin;
    job.share_optimizer = plan.share_optimizer;
    check_combination(job);
    job.recompute = job_.recompute == RecomputePolicy::all;
    cut(job, plan);
    return job;
  }

  SearchRequest request() const {
    const PlannedJob basis = basic();
    SearchRequest request;
    request.devices = devices_;
    request.global_batch =
        flags_.global_batch > 0 ? static_cast<double>(flags_.global_batch) : basis.batch * devices_;
    request.precision = basis.precision;
    request.wire = basis.wire;
    request.real_data = basis.real_data;
    request.optimizer_states = basis.optimizer_states;
    request.head = basis.head;
    request.head_fixed = command_.count("--head-parallel") > 0;
    request.asynchronous = !flags_.synchronous;
    if (command_.count("--schedule") > 0) {
      const ScheduleKind schedule = parse_schedule(job_flags_.plan.schedule);
      if (!plans_here_) require_predictable(schedule);
      request.order = order_of(schedule);
    }
    if (command_.count("--recompute") > 0 && job_.recompute != RecomputePolicy::automatic) {
      request.recompute = job_.recompute == RecomputePolicy::all;
    }
    if (command_.count("--share-optimizer") > 0) request.share_optimizer = true;
    return request;
  }

  SearchOutcome searched() const { return search_plans(context(), request()); }

  const PlanInputs& inputs() const { return inputs_; }

  CostContext context() const {
    return {inputs_.network, inputs_.cluster, inputs_.constants, inputs_.software};
  }

 private:
  // The model of costs knows no division of a layer, and no pipeline that splits the backward pass.
  static void require_predictable(const Plan& plan) {
    if (plan.sharding.parallelism != Parallelism::data || !plan.sharding.layers.empty()) {
      fail_input(
          "--parallel {} cannot be predicted on a described cluster; use data, or 'plan --predict' "
          "for this machine.",
          name_of(plan.sharding.parallelism));
    }
    if (plan.stages.size() > 1) require_predictable(plan.schedule);
  }

  static void require_predictable(ScheduleKind schedule) {
    if (is_predictable(schedule)) return;
    fail_input(
        "--schedule {} cannot be predicted on a described cluster; use another, or 'plan "
        "--predict' for this machine.",
        name_of(schedule));
  }

  void check_combination(PlannedJob& job) const {
    if (job.stages.size() == 1) {
      if (job.round_robin && command_.count("--replicas") > 0) {
        fail_input("--replicas roundrobin is predicted for several stages only; use split.");
      }
      job.round_robin = false;
      return;
    }
    if (job.round_robin && (job.order != PipelineOrder::one_by_one || job.micro_batches > 1)) {
      fail_input("--replicas roundrobin goes with --schedule 1f1b and one micro-batch.");
    }
    if (job.head.parallel != PlannedHead::Parallel::none) {
      fail_input("--head-parallel goes with one stage; leave out --placement.");
    }
  }

  // What the flags or the plan's file say, with the habits of the system for what they do not.
  Plan given_plan() const {
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
    Plan plan = to_plan(flags, 1);
    if (flags.placement.empty() && flags.plan_file.empty()) {
      const int count = inputs_.cluster.devices_per_machine;
      plan.stages = {Placement{}};
      for (int i = 0; i < devices_; ++i) plan.stages[0].devices.push_back({i / count, i % count});
    }
    check(plan, static_cast<int64_t>(job_flags_.batch) *
                    (plan.round_robin ? 1 : static_cast<int64_t>(plan.devices().size())));
    return plan;
  }

  void set_head() {
    const HeadFlags& flags = job_flags_.head;
    if (flags.head.empty() && command_.count("--head-parallel") == 0) return;
    using Parallel = PlannedHead::Parallel;
    constexpr Parallel kParallels[] = {Parallel::data, Parallel::model, Parallel::sampled};
    head_.parallel = kParallels[choose("--head-parallel", flags.parallel, {"dp", "mp", "pfc"})];
    if (!(flags.sample_rate > 0 && flags.sample_rate <= 1)) {
      fail_input("--sample-rate is {}; it must be above 0 and at most 1.", flags.sample_rate);
    }
    if (flags_.automatic && command_.count("--head-parallel") == 0 &&
        command_.count("--sample-rate") > 0) {
      head_.parallel = Parallel::sampled;  // allowed, beside the exact ones
    }
    head_.sample_rate = flags.sample_rate;
    head_.classes = static_cast<double>(job_.options.classes);
    job_.options.classes = 2;  // the head replaces the network's own classifier
    job_.options.head.reset();
  }

  PlannedJob basic() const {
    PlannedJob job;
    job.batch = static_cast<double>(job_flags_.batch);
    job.precision = precision_of(command_);
    job.wire = job_.precision.communication;
    job.real_data = job_.data.source != "synthetic";
    job.optimizer_states = static_cast<int>(optimizer_named(job_.optimizer.name).states.size());
    job.head = head_;
    return job;
  }

  void cut(PlannedJob& job, const Plan& plan) const {
    if (job.stages.size() == 1) return;
    if (!plan.cut_after.empty()) {
      set_cuts(job, cut_after(inputs_.network, plan.cut_after, "--cut-after"));
    } else if (!plan.stage_weights.empty()) {
      set_cuts(job, cut_by_operators(inputs_.network, plan.stage_weights, "--stage-weights"));
    } else {
      set_cuts(job, cut_by_cost(context(), job));
    }
  }

  const CLI::App& command_;
  const ClusterFlags& flags_;
  const JobFlags& job_flags_;
  TrainJob job_;
  const bool plans_here_;  // programs are made and measured, the costs only choose which
  PlanInputs inputs_;
  PlannedHead head_;
  int devices_ = 1;
};

}  // namespace

SearchSetup search_setup(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                         const Cluster& cluster) {
  const ClusterPlanner planner(command, flags, job, &cluster);
  return {planner.inputs(), planner.request()};
}

void add_cluster_flags(CLI::App& command, ClusterFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(kClusterGroup);
  };
  std::string names;
  for (const std::string& name : builtin_cluster_names()) names += name + ", ";
  add("--cluster", flags.cluster,
      fmt::format("The machines: {}here (measured, see millrace profile --machine) or a file that "
                  "describes them",
                  names));
  add("--as", flags.system,
      "Whose costs: millrace, oneflow, pipedream or insightface (fitted to published results)")
      ->capture_default_str();
  command
      .add_flag("--auto", flags.automatic,
                "Search for the fastest plan that fits: stages, schedule, micro-batches, "
                "recompute, head")
      ->group(kClusterGroup);
  command
      .add_flag("--synchronous", flags.synchronous,
                "With --auto: only schedules that train as one device would")
      ->group(kClusterGroup);
  add("--global-batch", flags.global_batch,
      "With --auto: samples of one update [--batch times the devices]")
      ->check(CLI::PositiveNumber);
  add("--finalists", flags.finalists,
      "With --auto on this machine: plans that are measured before one is chosen")
      ->capture_default_str();
  command
      .add_flag("--no-measure", flags.no_measure,
                "With --auto on this machine: choose by formula, without measuring")
      ->group(kClusterGroup);
  add("--constants", flags.constants, "Cost constants to use instead of the built-in ones");
  add("--output", flags.output, "Write the chosen plan to this file");
  if (command.get_option_no_throw("--trace") == nullptr) {
    add("--trace", flags.trace, "Write the simulated timeline to this file (Chrome trace)");
  }
}

bool uses_cluster(const CLI::App& command, const ClusterFlags& flags) {
  if (!flags.cluster.empty() || flags.automatic) return true;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0 && option->get_group() == kClusterGroup) {
      fail_input("--{} needs --cluster or --auto.", option->get_lnames().front());
    }
  }
  return false;
}

namespace {

// The same job with its head in each of the three ways.
void add_advice(const PlannedJob& job, const PlanInputs& inputs, Json& described) {
  using Parallel = PlannedHead::Parallel;
  if (job.head.parallel == Parallel::none || job.stages.size() != 1) return;
  std::vector<HeadChoice> choices;
  for (const auto& [planned, parallel] :
       {std::pair(Parallel::data, HeadParallel::dp), std::pair(Parallel::model, HeadParallel::mp),
        std::pair(Parallel::sampled, HeadParallel::pfc)}) {
    PlannedJob other = job;
    other.head.parallel = planned;
    const Prediction prediction =
        predict(inputs.network, other, inputs.cluster, inputs.constants, inputs.software);
    choices.push_back({parallel, prediction.samples_per_second, prediction.device_memory.front(),
                       prediction.fits});
  }
  described["head"] = to_json(choices);
  described["advice"] = advise_head({static_cast<int64_t>(job.head.classes), job.head.sample_rate,
                                     job.devices(), inputs.cluster.device.memory_bytes},
                                    choices);
}

}  // namespace

int run_cluster_plan(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                     bool json) {
  const ClusterPlanner planner(command, flags, job);
  const PlanInputs& inputs = planner.inputs();
  PlannedJob chosen;
  Json report;
  if (flags.automatic) {
    const SearchOutcome outcome = planner.searched();
    if (outcome.plans.empty()) {
      report = describe_search(outcome, inputs);
      fmt::print("{}", json ? report.dump(2) + "\n" : format_search(report));
      return kExitSuccess;
    }
    chosen = outcome.plans.front().job;
    report = describe_search(outcome, inputs);
  } else {
    chosen = planner.given();
  }
  const Prediction prediction =
      predict(inputs.network, chosen, inputs.cluster, inputs.constants, inputs.software);
  Json described = describe_prediction(chosen, prediction, inputs);
  if (!report.is_null()) add_search(described, std::move(report));
  add_advice(chosen, inputs, described);
  deliver(described, prediction, {flags.output, flags.trace, json});
  return kExitSuccess;
}

}  // namespace millrace
