#include "cli/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cluster_report.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "planner/search/profiled_network.h"
#include "profile/job_profile.h"
#include "profile/machine.h"

namespace millrace {
namespace {

constexpr const char* kErrors =
    "Computing takes the times of the profile; how well the rest is guessed has not been measured.";

// Flags that say something about a network of which only a profile is known.
constexpr std::string_view kWithoutModel[] = {
    "auto",      "profile",    "profile-batch", "cluster",       "workers", "bandwidth",
    "memory",    "straight",   "fewer",         "device-memory", "batch",   "activation-ratio",
    "schedule",  "recompute",  "global-batch",  "devices",       "as",      "share-optimizer",
    "optimizer", "comm-dtype", "synchronous",   "constants",     "json",    "trace",
    "output",    "model"};

class ProfilePlanner {
 public:
  ProfilePlanner(const CLI::App& command, const ProfilePlanFlags& flags)
      : command_(command), flags_(flags) {
    check_flags();
    const ClusterFlags& cluster = flags.cluster;
    inputs_.constants = cluster.constants.empty()
                            ? builtin_constants()
                            : parse_constants(read_text(cluster.constants), cluster.constants);
    inputs_.software = inputs_.constants.system(cluster.system, "--as");
    set_cluster();
    read_file();
    if (!cluster.output.empty()) require_writable(cluster.output, "--output");
    if (!cluster.trace.empty()) require_writable(cluster.trace, "--trace");
  }

  const PlanInputs& inputs() const { return inputs_; }

  SearchOutcome search() {
    const std::string& model = flags_.job.model;
    SearchRequest request = basic_request();
    if (model.empty()) {
      const PipedreamOptions options =
          to_options(flags_.profile, levels_.empty() ? levels_of(context(), devices_) : levels_);
      ProfiledNetwork planned = divide_profile(file_.profile, options, file_.samples);
      inputs_.network = std::move(planned.network);
      inputs_.network.model = std::filesystem::path(flags_.profile.profile).stem().string();
      ignored_ = std::move(planned.ignored);
      request.divisions = std::move(planned.divisions);
      request.trained = false;
    } else {
      JobFlags job = flags_.job;
      job.plan = {};
      inputs_.network = work_of(model, to_job(job).options);
      set_measured(inputs_.network, file_.profile, file_.samples, flags_.profile.profile);
    }
    return search_plans(context(), request);
  }

  void describe(Json& described) const {
    described["profile"] = flags_.profile.profile;
    described["profile_samples"] = file_.samples;
    described["ignored_nodes"] = ignored_;
    if (described.contains("error_estimate")) {
      described["error_estimate"] = {{"fitted", false}, {"from", kErrors}};
    }
  }

 private:
  bool given(const char* flag) const { return command_.count(flag) > 0; }

  void check_flags() const {
    if (!flags_.job.model.empty()) return;
    for (const CLI::Option* option : command_.get_options()) {
      if (option->count() == 0) continue;
      const std::string& name = option->get_lnames().front();
      if (std::ranges::find(kWithoutModel, name) != std::end(kWithoutModel)) continue;
      fail_input("--{} does not go with --profile unless --model says what the profile is of.",
                 name);
    }
    if (!flags_.cluster.output.empty()) {
      fail_input("--output needs --model: a profile alone does not say which network to train.");
    }
  }

  void set_cluster() {
    const ClusterFlags& cluster = flags_.cluster;
    const std::string& bandwidth = flags_.profile.bandwidth;
    if (cluster.cluster.empty()) {
      if (!given("--workers") || bandwidth.empty()) {
        fail_input("--auto --profile needs --cluster, or --workers and --bandwidth.");
      }
      if (given("--devices")) {
        fail_input("--devices goes with --cluster; --workers says how many there are.");
      }
      levels_ = parse_levels(flags_.workers, bandwidth);
      check(PipedreamOptions{.levels = levels_});
      inputs_.cluster = cluster_of(levels_);
    } else {
      if (!bandwidth.empty()) {
        fail_input("--cluster and --bandwidth both describe links; give one of them.");
      }
      ProgressPrinter messages(true);
      inputs_.cluster = cluster.cluster == "here" ? cluster_here(messages)
                                                  : find_cluster(cluster.cluster, "--cluster");
    }
    devices_ = given("--devices") ? flags_.job.plan.devices : inputs_.cluster.devices();
    if (devices_ < 1 || devices_ > inputs_.cluster.devices()) {
      fail_input("--devices is {}, but cluster '{}' has {}.", devices_, inputs_.cluster.name,
                 inputs_.cluster.devices());
    }
    set_memory("--memory", flags_.profile.memory);
    set_memory("--device-memory", flags_.job.device_memory);
  }

  void set_memory(const char* flag, const std::string& text) {
    if (text.empty()) return;
    const auto bytes = static_cast<double>(parse_bytes(text, flag));
    if (bytes <= 0) fail_input("{} must be above 0.", flag);
    double& memory = inputs_.cluster.device.memory_bytes;
    memory = flag == std::string_view("--memory") ? bytes : std::min(memory, bytes);
  }

  void read_file() {
    file_ = read_planning_profile(flags_.profile.profile);
    const double typed = flags_.profile.profile_batch;
    if (given("--profile-batch") && !(typed >= 1 && typed <= 1e9)) {
      fail_input("--profile-batch is {}; give 1 to 1e9.", typed);
    }
    if (flags_.job.batch < 1) fail_input("--batch is {}; give at least 1.", flags_.job.batch);
    if (typed >= 1) file_.samples = typed;
    if (file_.samples < 1) file_.samples = static_cast<double>(flags_.job.batch);
  }

  SearchRequest basic_request() const {
    SearchRequest request;
    const double batch = given("--batch") ? static_cast<double>(flags_.job.batch) : file_.samples;
    const auto global = static_cast<double>(flags_.cluster.global_batch);
    request.devices = devices_;
    request.global_batch = global > 0 ? global : batch * devices_;
    const PrecisionSettings precision = to_precision(flags_.job.precision);
    request.precision = precision.type;
    request.wire = precision.communication;
    request.optimizer_states =
        static_cast<int>(choose_optimizer(flags_.job.optimizer).states.size());
    request.asynchronous = !flags_.cluster.synchronous;
    if (given("--schedule")) {
      const ScheduleKind schedule = parse_schedule(flags_.job.plan.schedule);
      if (!is_predictable(schedule)) {
        fail_input("--schedule {} cannot be predicted from a profile; use another.",
                   name_of(schedule));
      }
      request.order = order_of(schedule);
    }
    const size_t recompute = choose("--recompute", flags_.job.recompute, {"auto", "none", "all"});
    if (recompute > 0) request.recompute = recompute == 2;
    if (given("--share-optimizer")) request.share_optimizer = true;
    request.straight = flags_.profile.straight;
    request.fewer = flags_.profile.fewer;
    return request;
  }

  CostContext context() const {
    return {inputs_.network, inputs_.cluster, inputs_.constants, inputs_.software};
  }

  const CLI::App& command_;
  const ProfilePlanFlags& flags_;
  PlanInputs inputs_;
  PlanningProfile file_;
  std::vector<Level> levels_;  // as typed; empty: those of the cluster
  std::vector<std::string> ignored_;
  int devices_ = 1;
};

}  // namespace

bool uses_profile(const CLI::App& command, const ProfilePlanFlags& flags) {
  return flags.cluster.automatic && !flags.profile.profile.empty() &&
         command.count("--strategy") == 0;
}

int run_profile_plan(const CLI::App& command, const ProfilePlanFlags& flags) {
  ProfilePlanner planner(command, flags);
  const SearchOutcome outcome = planner.search();
  const PlanInputs& inputs = planner.inputs();
  Json report = describe_search(outcome, inputs);
  if (outcome.plans.empty()) {
    planner.describe(report);
    fmt::print("{}", flags.json ? report.dump(2) + "\n" : format_search(report));
    return kExitSuccess;
  }
  const PlannedJob& chosen = outcome.plans.front().job;
  const Prediction prediction =
      predict(inputs.network, chosen, inputs.cluster, inputs.constants, inputs.software);
  Json described = describe_prediction(chosen, prediction, inputs);
  add_search(described, std::move(report));
  planner.describe(described);
  deliver(described, prediction, {flags.cluster.output, flags.cluster.trace, flags.json});
  return kExitSuccess;
}

}  // namespace millrace
