#include "cli/interruptible_job.h"

#include <fmt/format.h>

#include "base/text.h"

namespace millrace::cli {
namespace {

constexpr double kLong = 1;  // seconds that a person should be told of

}  // namespace

InterruptibleJob::InterruptibleJob(const train::TrainJob& job, Interruption& interruption)
    : job_(job), interruption_(interruption) {}

void InterruptibleJob::on_activity(std::string_view what) {
  const char* kept = job_.resume ? "checkpoints are as they were" : "nothing was changed";
  interruption_.end_at_once(
      fmt::format("Interrupted while {}, before the first step: {}. Give the same command to start "
                  "again.",
                  what, kept));
}

void InterruptibleJob::on_start(const train::JobStart& start) {
  finish_first(start.first_step, start.total_steps, 0);
}

void InterruptibleJob::on_step(const train::StepReport& report) {
  finish_first(report.step, report.total_steps, report.seconds);
}

void InterruptibleJob::finish_first(int64_t step, int64_t total_steps, double step_seconds) {
  std::string when = fmt::format("Stopping after step {}", step + 1);
  if (step_seconds > kLong) when += fmt::format(", within {}", format_duration(step_seconds));
  if (step == total_steps) when = "Stopping; all steps are done";
  const std::string saved =
      job_.checkpoint.empty()
          ? "nothing is saved, as there is no --checkpoint"
          : fmt::format("a checkpoint is saved in '{}'{}", job_.checkpoint.string(),
                        job_.processes != nullptr ? " if all ranks are there" : "");
  interruption_.finish_first(
      fmt::format("{}; {}. A second signal ends at once, without that.", when, saved));
}

}  // namespace millrace::cli
