#include "train/stage_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace millrace::train {
namespace {

// The schedule where there are several stages. One stage waits for all gradients of a step whatever
// the schedule says, which scripts pass for any number of stages.
parallel::ScheduleKind order_of(const parallel::Plan& plan) {
  return plan.stage_count() > 1 ? plan.schedule : parallel::ScheduleKind::one_f_one_b_flush;
}

}  // namespace

int64_t steps_to_fill(const parallel::Plan& plan) {
  if (parallel::is_synchronous(order_of(plan))) return 1;
  return 4 * static_cast<int64_t>(plan.devices().size() + plan.stages.size());
}

compile::CompileOptions compile_options(const StepSettings& job, int threads,
                                        kernels::ConvolutionChoices* choices) {
  compile::CompileOptions options;
  options.kernels.convolution = job.convolution;
  options.kernels.choices = choices;
  options.kernels.threads = threads;
  options.optimizer = job.optimizer;
  options.updates.check_overflow = job.loss_scale.in_use();
  options.precision = job.precision;
  options.recompute = job.recompute;
  options.memory_limit = job.device_memory;
  options.dump_directory = job.dump_passes;
  return options;
}

parallel::Schedule schedule_of(const parallel::Plan& plan, int64_t steps) {
  parallel::ScheduleRequest request;
  request.kind = order_of(plan);
  request.stages = plan.stage_count();
  request.micro_batches = plan.micro_batches;
  request.steps = steps;
  for (const parallel::Placement& stage : plan.stages) request.replicas.push_back(stage.size());
  request.round_robin = plan.round_robin;
  request.static_scheduling = plan.static_scheduling;
  request.turns = plan.turns();
  return parallel::make_schedule(request);
}

bool agrees_on_updates(const StepSettings& job) {
  const parallel::Plan& plan = job.plan;
  const bool clips_together = job.optimizer.clip_norm > 0 && plan.stage_count() > 1;
  if (clips_together && !parallel::is_synchronous(order_of(plan))) {
    fail_input(
        "‹clip_norm› limits the norm of all gradients, but with ‹schedule› {} every stage updates "
        "at a moment of its own; use {}.",
        plan.schedule_name(), parallel::schedule_names(/*synchronous=*/true));
  }
  return clips_together || (job.loss_scale.in_use() && parallel::is_synchronous(order_of(plan)));
}

compile::CompileOptions stage_options(const StepSettings& job, int stage, int member, int threads,
                                      kernels::ConvolutionChoices* choices) {
  const parallel::Plan& plan = job.plan;
  compile::CompileOptions options = compile_options(job, threads, choices);
  options.updates.members = plan.stages[static_cast<size_t>(stage)].size();
  options.updates.member = member;
  options.updates.wire = job.precision.wire();
  options.updates.share_state = plan.share_optimizer && options.updates.members > 1;
  if (plan.devices().size() > 1) {
    const parallel::DeviceId& id =
        plan.stages[static_cast<size_t>(stage)].devices[static_cast<size_t>(member)];
    options.device = fmt::format("device {} (stage {})", parallel::to_string(id), stage);
  }
  if (plan.runs_whole()) return options;
  options.updates.with_stages = plan.stage_count() > 1;
  const bool agrees = agrees_on_updates(job);
  const parallel::Schedule schedule = schedule_of(plan, steps_to_fill(plan));
  const int replica = plan.round_robin ? member : 0;
  for (const parallel::Row& row : schedule.rows) {
    if (row.stage != stage || row.replica != replica) continue;
    const bool at_once = schedule.updates_at_once(row) && !agrees;
    options.shape.phasing =
        at_once ? compile::Phasing::mini_batches : compile::Phasing::micro_batches;
    options.shape.slots = static_cast<int>(row.in_flight);
    options.shape.versions = static_cast<int>(row.versions);
    if (job.options.head && stage + 1 == plan.stage_count() && row.versions > 1) {
      fail_input(
          "‹schedule› {} keeps {} versions of the class centres of ‹head›; use 1f1b, or a schedule "
          "that waits for all micro-batches.",
          plan.schedule_name(), row.versions);
    }
    options.updates.accumulate = !at_once;
    options.updates.micro_batches = plan.micro_batches;
    options.shape.split_backward = order_of(plan) == parallel::ScheduleKind::zero_bubble;
  }
  return options;
}

}  // namespace millrace::train
