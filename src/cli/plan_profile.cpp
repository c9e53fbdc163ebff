#include "cli/plan_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cluster_report.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/progress.h"
#include "planner/search/profiled_network.h"
#include "profile/job_profile.h"
#include "profile/machine.h"

namespace millrace::cli {
namespace {

constexpr const char* kErrors =
    "Computing takes the times of the profile; how well the rest is guessed has not been measured.";

// Flags that say something about a network of which only a profile is known.
constexpr std::string_view kWithoutModel[] = {
    "auto",      "profile",    "profile-batch", "cluster",       "workers", "bandwidth",
    "memory",    "straight",   "fewer",         "device-memory", "batch",   "activation-ratio",
    "schedule",  "recompute",  "global-batch",  "devices",       "as",      "share-optimizer",
    "optimizer", "comm-dtype", "allow-stale",   "constants",     "json",    "trace",
    "output",    "model",      "price"};

class ProfilePlanner {
 public:
  ProfilePlanner(const CLI::App& command, const ProfilePlanFlags& flags)
      : command_(command), flags_(flags) {
    check_flags();
    const ClusterFlags& cluster = flags.cluster;
    inputs_.constants =
        cluster.constants.empty()
            ? planner::builtin_constants()
            : planner::parse_constants(read_text(cluster.constants), cluster.constants);
    inputs_.software = inputs_.constants.system(cluster.system, "--as");
    set_cluster();
    read_file();
    if (!cluster.output.empty()) require_writable(cluster.output, "--output");
    if (!cluster.trace.empty()) require_writable(cluster.trace, "--trace");
  }

  const planner::PlanInputs& inputs() const { return inputs_; }

  planner::SearchOutcome search() {
    const std::string& model = flags_.job.model;
    planner::SearchRequest request = basic_request();
    if (model.empty()) {
      const planner::PipedreamOptions options = to_options(
          flags_.profile, levels_.empty() ? planner::levels_of(context(), devices_) : levels_);
      planner::ProfiledNetwork planned =
          planner::divide_profile(file_.profile, options, file_.samples);
      inputs_.network = std::move(planned.network);
      inputs_.network.model = std::filesystem::path(flags_.profile.profile).stem().string();
      ignored_ = std::move(planned.ignored);
      request.divisions = std::move(planned.divisions);
      request.trained = false;
    } else {
      JobFlags job = flags_.job;
      job.plan = {};
      inputs_.network = planner::work_of(model, to_job(job).options);
      planner::set_measured(inputs_.network, file_.profile, file_.samples, flags_.profile.profile);
    }
    return planner::search_plans(context(), request);
  }

  void describe(Json& described) const {
    described["profile"] = flags_.profile.profile;
    described["profile_samples"] = file_.samples;
    described["ignored_nodes"] = ignored_;
    described["source"] = "profile";
    described.erase("interval");  // of formulas
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
      planner::check(planner::PipedreamOptions{.levels = levels_});
      inputs_.cluster = planner::cluster_of(levels_);
    } else {
      if (!bandwidth.empty()) {
        fail_input("--cluster and --bandwidth both describe links; give one of them.");
      }
      ProgressPrinter messages(true);
      inputs_.cluster = cluster.cluster == "here"
                            ? profile::cluster_here(messages)
                            : planner::find_cluster(cluster.cluster, "--cluster");
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
    file_ = profile::read_planning_profile(flags_.profile.profile);
    const double typed = flags_.profile.profile_batch;
    if (given("--profile-batch") && !(typed >= 1 && typed <= 1e9)) {
      fail_input("--profile-batch is {}; give 1 to 1e9.", typed);
    }
    if (flags_.job.batch < 1) fail_input("--batch is {}; give at least 1.", flags_.job.batch);
    if (typed >= 1) file_.samples = typed;
    if (file_.samples < 1) file_.samples = static_cast<double>(flags_.job.batch);
  }

  planner::SearchRequest basic_request() const {
    planner::SearchRequest request;
    const double batch = given("--batch") ? static_cast<double>(flags_.job.batch) : file_.samples;
    const auto global = static_cast<double>(flags_.cluster.global_batch);
    request.devices = devices_;
    request.global_batch = global > 0 ? global : batch * devices_;
    const passes::PrecisionSettings precision = to_precision(flags_.job.precision);
    request.precision = precision.type;
    request.wire = precision.communication;
    request.optimizer_states =
        static_cast<int>(choose_optimizer(flags_.job.optimizer).states.size());
    request.allow_stale = flags_.cluster.allow_stale;
    if (given("--schedule")) request.schedule = parallel::parse_schedule(flags_.job.plan.schedule);
    const size_t recompute = choose("--recompute", flags_.job.recompute, {"auto", "none", "all"});
    if (recompute > 0) request.recompute = recompute == 2;
    if (given("--share-optimizer")) request.share_optimizer = true;
    request.straight = flags_.profile.straight;
    request.fewer = flags_.profile.fewer;
    return request;
  }

  planner::CostContext context() const { return inputs_.context(); }

  const CLI::App& command_;
  const ProfilePlanFlags& flags_;
  planner::PlanInputs inputs_;
  profile::PlanningProfile file_;
  std::vector<planner::Level> levels_;  // as typed; empty: those of the cluster
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
  const planner::SearchOutcome outcome = planner.search();
  const planner::PlanInputs& inputs = planner.inputs();
  Json report = describe_search(outcome, inputs);
  if (outcome.plans.empty()) {
    planner.describe(report);
    fmt::print("{}", with_flags(flags.json ? report.dump(2) + "\n" : format_search(report)));
    return kExitSuccess;
  }
  const planner::PlannedJob& chosen = outcome.plans.front().job;
  const planner::Prediction prediction = planner::predict(inputs.context(), chosen);
  Json described = describe_prediction(chosen, prediction, inputs);
  add_search(described, std::move(report));
  planner.describe(described);
  add_price(described, {flags.cluster.price, flags.job.epochs, flags.job.steps});
  deliver(described, prediction, {flags.cluster.output, flags.cluster.trace, flags.json});
  return kExitSuccess;
}

}  // namespace millrace::cli
