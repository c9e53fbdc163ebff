#include "cli/plan_flags.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "cli/job_flags.h"
#include "parallel/partition.h"

namespace millrace::cli {
namespace {

constexpr const char* kPlanningGroup = "Placement";

// The same number of devices in each process, all in one stage.
parallel::Placement even_placement(int devices, int processes) {
  parallel::Placement placement;
  for (int node = 0; node < processes; ++node) {
    for (int device = 0; device < devices; ++device) placement.devices.push_back({node, device});
  }
  return placement;
}

}  // namespace

void add_plan_flags(CLI::App& command, PlanFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(kPlanningGroup);
  };
  add("--devices", flags.devices,
      "Devices of each process, which share the work of one stage; cores are divided over them "
      "[1]");
  add("--placement", flags.placement,
      "Devices of each stage, as node:devices: 0:0-6.0:7 is a pipeline of seven devices and one, "
      "0:0,1:0 one stage in two processes");
  add("--parallel", flags.parallel,
      "How a stage divides its work: data (each device some samples), model (each some of every "
      "layer) or hybrid (convolutions by samples, linear layers and loss by outputs)")
      ->capture_default_str();
  command
      .add_flag("--sync-batch-norm", flags.synchronise_batch_norm,
                "Normalise over the samples of all devices of a stage")
      ->group(kPlanningGroup);
  command
      .add_flag("--share-optimizer", flags.share_optimizer,
                "Each device of a stage keeps a part of the optimizer state instead of all of it")
      ->group(kPlanningGroup);
  add("--stage-weights", flags.stage_weights,
      "Share of the operators for each stage, such as 11:7, or auto: equal time [auto]");
  add("--cut-after", flags.cut_after, "Or the layers after which a stage ends")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--schedule", flags.schedule,
      fmt::format(
          "Order of a pipeline: {} (as one device computes), {} (never drained, updates from "
          "slightly older weights)",
          parallel::schedule_names(true), parallel::schedule_names(false)))
      ->capture_default_str();
  add("--static-scheduling", flags.static_scheduling,
      "ssp: on fixes the order of work, off lets whatever is ready run")
      ->capture_default_str();
  add("--microbatches", flags.micro_batches,
      "Parts of a step that follow each other, their gradients added up; with one stage this is "
      "gradient accumulation [1; twice the stages for drained pipelines]");
  add("--replicas", flags.replicas,
      "Devices of a stage share each micro-batch (split) or take whole ones in turn (roundrobin)")
      ->capture_default_str();
  add("--plan", flags.plan_file,
      "Take all of this from a JSON file, as `millrace plan` writes it, and precision, "
      "recomputation, "
      "division of the head, model and batch where it tells them");
}

parallel::PlanFile read_plan_file(const std::string& path) {
  const Json json = Json::parse(read_text(path), nullptr, false);
  if (json.is_discarded()) fail_input("--plan: '{}' is not valid JSON.", path);
  return parallel::parse_plan_file(json.is_object() && json.contains("plan") ? json["plan"] : json,
                                   "--plan '" + path + "'");
}

parallel::Plan to_plan(const PlanFlags& flags, int processes) {
  if (!flags.plan_file.empty()) return read_plan_file(flags.plan_file).plan;
  parallel::Plan plan;
  if (flags.devices < 0 || flags.devices > parallel::kMostDevicesPerNode) {
    fail_input("--devices is {}; give 1 to {}.", flags.devices, parallel::kMostDevicesPerNode);
  }
  if (flags.devices > 0 && !flags.placement.empty()) {
    fail_input("--devices and --placement both name devices; give one of them.");
  }
  plan.stages = flags.placement.empty()
                    ? std::vector{even_placement(std::max(1, flags.devices), processes)}
                    : parallel::parse_stages(flags.placement);
  plan.sharding.parallelism = parallel::parse_parallelism(flags.parallel);
  plan.sharding.synchronise_batch_norm = flags.synchronise_batch_norm;
  plan.share_optimizer = flags.share_optimizer;
  if (!flags.stage_weights.empty() && flags.stage_weights != "auto") {
    plan.stage_weights = parallel::parse_stage_weights(flags.stage_weights, "--stage-weights");
  }
  plan.cut_after = flags.cut_after;
  plan.schedule = parallel::parse_schedule(flags.schedule);
  plan.static_scheduling =
      choose("--static-scheduling", flags.static_scheduling, {"off", "on"}) == 1;
  plan.round_robin = choose("--replicas", flags.replicas, {"split", "roundrobin"}) == 1;
  if (flags.micro_batches < 0) {
    fail_input("--microbatches is {}; give at least 1.", flags.micro_batches);
  }
  const bool drains = plan.stages.size() > 1 && parallel::is_synchronous(plan.schedule);
  const bool needs_several = drains || plan.schedule == parallel::ScheduleKind::two_bw;
  plan.micro_batches = flags.micro_batches > 0 ? flags.micro_batches
                       : needs_several && plan.stages.size() > 1
                           ? 2 * static_cast<int64_t>(plan.stages.size())
                           : 1;
  return plan;
}

}  // namespace millrace::cli
