#include "cli/plan_cluster.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cluster_report.h"
#include "cli/command.h"
#include "cli/plan_pipedream.h"
#include "planner/search/cuts.h"
#include "runtime/device.h"
#include "train/plan.h"

namespace millrace {
namespace {

constexpr const char* kGroup = "On a described cluster";

struct SharedFlag {
  const char* name;
  const char* help;
};

// Flags of the job contract that matter here.
constexpr SharedFlag kShared[] = {
    {"--devices", "Devices to use [all of the cluster]"},
    {"--placement", "Devices of each stage, MACHINE:FIRST-LAST, stages apart by a dot: 0:0-6.0:7"},
    {"--stage-weights",
     "Share of the operators of each stage, such as 11:7, or auto: balanced by cost [auto]"},
    {"--schedule", "Of several stages: gpipe, 1f1b-flush, 1f1b, ssp or 2bw [as the system does]"},
    {"--static-scheduling", "Order of ssp fixed beforehand: on or off [on]"},
    {"--microbatches", "Pieces of a device's batch that go through the stages [1]"},
    {"--replicas", "Devices of one stage: split (each batch) or roundrobin (take turns)"},
    {"--precision", "fp32, fp16 or bf16 [fp32]"},
    {"--head", "Loss of a classifier of many classes: softmax, arcface or cosface [softmax]"},
    {"--head-parallel", "A classifier of many classes: dp, mp or pfc (sampled)"},
    {"--sample-rate", "Share of the classes that pfc computes [0.1]"}};

std::string text_of(const CLI::App& command, const char* name, const std::string& fallback = "") {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option == nullptr || option->count() == 0 ? fallback : option->as<std::string>();
}

DataType precision_of(const CLI::App& command) {
  constexpr DataType kTypes[] = {DataType::f32, DataType::f16, DataType::bf16};
  const std::string name = text_of(command, "--precision", "fp32");
  return kTypes[choose("--precision", name, {"fp32", "fp16", "bf16"})];
}

PipelineOrder order_of(const CLI::App& command, const std::string& fallback) {
  constexpr PipelineOrder kOrders[] = {PipelineOrder::gpipe, PipelineOrder::flush,
                                       PipelineOrder::one_by_one, PipelineOrder::stale,
                                       PipelineOrder::two_copies};
  return kOrders[choose("--schedule", text_of(command, "--schedule", fallback),
                        {"gpipe", "1f1b-flush", "1f1b", "ssp", "2bw"})];
}

double number_of(const CLI::App& command, const char* name, double fallback) {
  const std::string text = text_of(command, name);
  if (text.empty()) return fallback;
  try {
    size_t used = 0;
    const double value = std::stod(text, &used);
    if (used == text.size() && value > 0 && value <= 1) return value;
  } catch (const std::exception&) {
  }
  fail_input("{} is '{}'; it must be a number above 0 and at most 1.", name, text);
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

// Everything that is known before a plan is chosen.
class ClusterPlanner {
 public:
  ClusterPlanner(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job_flags)
      : command_(command), flags_(flags), job_(to_job(job_flags)) {
    inputs_.constants = flags.constants.empty()
                            ? builtin_constants()
                            : parse_constants(read_text(flags.constants), flags.constants);
    inputs_.software = inputs_.constants.system(flags.system, "--as");
    inputs_.cluster =
        find_cluster(flags.cluster.empty() ? "this-machine" : flags.cluster, "--cluster");
    measure(inputs_.cluster);
    if (job_.device_memory > 0) {
      inputs_.cluster.device.memory_bytes = static_cast<double>(job_.device_memory);
    }
    set_head();
    inputs_.network = work_of(job_.model, job_.options);
    devices_ = parse_count(text_of(command, "--devices", std::to_string(inputs_.cluster.devices())),
                           "--devices");
    if (devices_ < 1 || devices_ > inputs_.cluster.devices()) {
      fail_input("--devices is {}, but cluster '{}' has {}.", devices_, inputs_.cluster.name,
                 inputs_.cluster.devices());
    }
    if (!flags.output.empty()) require_writable(flags.output, "--output");
    if (!flags.trace.empty()) require_writable(flags.trace, "--trace");
  }

  PlannedJob given() const {
    PlannedJob job = basic();
    const int layers = static_cast<int>(inputs_.network.layers.size());
    const std::string placement = text_of(command_, "--placement");
    if (placement.empty()) {
      PlannedStage stage{{}, 0, layers};
      for (int device = 0; device < devices_; ++device) stage.devices.push_back(device);
      job.stages = {stage};
    } else {
      for (auto& devices : stages_on(placement, inputs_.cluster.machines,
                                     inputs_.cluster.devices_per_machine, "--placement")) {
        job.stages.push_back({std::move(devices), 0, layers});
      }
    }
    job.micro_batches = parse_count(text_of(command_, "--microbatches", "1"), "--microbatches");
    if (job.micro_batches < 1) fail_input("--microbatches must be at least 1.");
    const std::string usual = flags_.system == "pipedream" ? "1f1b"
                              : flags_.system == "oneflow" ? "ssp"
                                                           : "1f1b-flush";
    job.order = order_of(command_, usual);
    if (job.stages.size() == 1) job.order = PipelineOrder::flush;
    job.fixed_order = choose("--static-scheduling", text_of(command_, "--static-scheduling", "on"),
                             {"off", "on"}) == 1;
    const bool turns = inputs_.software.round_robin && job.order == PipelineOrder::one_by_one;
    const std::string replicas = text_of(command_, "--replicas", turns ? "roundrobin" : "split");
    job.round_robin = choose("--replicas", replicas, {"split", "roundrobin"}) == 1;
    check_combination(job);
    job.recompute = job_.recompute == RecomputePolicy::all;
    cut(job);
    return job;
  }

  SearchOutcome searched() const {
    const PlannedJob basis = basic();
    SearchRequest request;
    request.devices = devices_;
    request.global_batch =
        flags_.global_batch > 0 ? static_cast<double>(flags_.global_batch) : basis.batch * devices_;
    request.precision = basis.precision;
    request.real_data = basis.real_data;
    request.optimizer_states = basis.optimizer_states;
    request.head = basis.head;
    request.asynchronous = !flags_.synchronous;
    if (!text_of(command_, "--schedule").empty()) request.order = order_of(command_, "");
    if (command_.count("--recompute") > 0 && job_.recompute != RecomputePolicy::automatic) {
      request.recompute = job_.recompute == RecomputePolicy::all;
    }
    return search_plans(inputs_.network, request, inputs_.cluster, inputs_.constants,
                        inputs_.software);
  }

  const PlanInputs& inputs() const { return inputs_; }

 private:
  static void check_combination(PlannedJob& job) {
    if (job.stages.size() == 1) {
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

  void set_head() {
    const bool plain = text_of(command_, "--head", "softmax") == "softmax";
    const std::string parallel = text_of(command_, "--head-parallel", plain ? "" : "dp");
    if (parallel.empty()) return;
    using Parallel = PlannedHead::Parallel;
    constexpr Parallel kParallels[] = {Parallel::data, Parallel::model, Parallel::sampled};
    head_.parallel = kParallels[choose("--head-parallel", parallel, {"dp", "mp", "pfc"})];
    head_.sample_rate = number_of(command_, "--sample-rate", head_.sample_rate);
    head_.classes = static_cast<double>(job_.options.classes);
    job_.options.classes = 2;  // the head replaces the network's own classifier
  }

  PlannedJob basic() const {
    PlannedJob job;
    job.batch = static_cast<double>(job_.options.batch);
    job.precision = precision_of(command_);
    job.real_data = job_.data.source != "synthetic";
    job.optimizer_states = job_.optimizer.kind == OptimizerSettings::Kind::adamw ? 2 : 1;
    job.head = head_;
    return job;
  }

  void cut(PlannedJob& job) const {
    if (job.stages.size() == 1) return;
    const std::string weights = text_of(command_, "--stage-weights", "auto");
    if (weights == "auto" || weights == "profile") {
      set_cuts(job, cut_by_cost(inputs_.network, job, inputs_.cluster, inputs_.constants,
                                inputs_.software));
    } else {
      set_cuts(job,
               cut_by_operators(inputs_.network, weights, job.stages.size(), "--stage-weights"));
    }
  }

  const CLI::App& command_;
  const ClusterFlags& flags_;
  TrainJob job_;
  PlanInputs inputs_;
  PlannedHead head_;
  int devices_ = 1;
};

}  // namespace

void add_cluster_flags(CLI::App& command, ClusterFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(kGroup);
  };
  std::string names;
  for (const std::string& name : builtin_cluster_names()) names += name + ", ";
  add("--cluster", flags.cluster,
      fmt::format("The machines: {}or a file that describes them", names));
  add("--as", flags.system,
      "Whose costs: millrace, oneflow, pipedream or insightface (fitted to published results)")
      ->capture_default_str();
  command
      .add_flag("--auto", flags.automatic,
                "Search for the fastest plan that fits: stages, schedule, micro-batches, "
                "recompute, head")
      ->group(kGroup);
  command
      .add_flag("--synchronous", flags.synchronous,
                "With --auto: only schedules that train as one device would")
      ->group(kGroup);
  add("--global-batch", flags.global_batch,
      "With --auto: samples of one update [--batch times the devices]");
  add("--constants", flags.constants, "Cost constants to use instead of the built-in ones");
  add("--output", flags.output, "Write the chosen plan to this file");
  if (command.get_option_no_throw("--trace") == nullptr) {
    add("--trace", flags.trace, "Write the simulated timeline to this file (Chrome trace)");
  }
  for (const SharedFlag& flag : kShared) {
    if (command.get_option_no_throw(flag.name) != nullptr) continue;
    command.add_option(flag.name, flag.help)->expected(1)->group(kGroup);
  }
}

bool uses_cluster(const CLI::App& command, const ClusterFlags& flags) {
  if (!flags.cluster.empty() || flags.automatic) return true;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0 && option->get_group() == kGroup) {
      fail_input("--{} needs --cluster or --auto.", option->get_lnames().front());
    }
  }
  return false;
}

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
  if (!report.is_null()) described["search"] = std::move(report);
  if (!flags.output.empty()) write_text(flags.output, described["plan"].dump(2) + "\n");
  if (!flags.trace.empty()) {
    write_text(flags.trace, trace_of(prediction.simulation.input, prediction.result).dump() + "\n");
  }
  if (json) {
    fmt::print("{}\n", described.dump(2));
  } else {
    fmt::print("{}", format_prediction(described));
  }
  return kExitSuccess;
}

}  // namespace millrace
