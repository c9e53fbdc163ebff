#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cctype>
#include <cstdio>

#include "base/text.h"
#include "cli/flag_names.h"
#include "cli/standard_files.h"

namespace millrace::cli {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{100};
constexpr std::chrono::seconds kPlainInterval{5};
constexpr double kTellWaiting = 0.01;  // of the time

}  // namespace

std::string describe_step(const train::StepReport& report, const StepContext& context) {
  const std::string epoch =
      context.steps_per_epoch > 0 ? fmt::format("epoch {}  ", report.epoch + 1) : std::string();
  std::string scale = report.loss_scale == 1 ? "" : fmt::format("  scale {:g}", report.loss_scale);
  if (report.skipped) scale += " (overflow, skipped)";
  std::string more;
  if (context.waited >= kTellWaiting) {
    more += fmt::format("  data wait {:.0f} %", 100 * context.waited);
  }
  if (context.best) more += "  best " + train::describe(*context.best);
  return fmt::format("{}step {}/{}  loss {:.4f}  lr {:.4g}{}  {:.1f} samples/s  {} left{}", epoch,
                     report.step, report.total_steps, report.loss, report.learning_rate, scale,
                     report.samples_per_second, format_duration(report.seconds_left), more);
}

std::string describe_memory(const train::JobStart& start) {
  std::vector<std::string> stages;
  for (const int64_t bytes : start.stage_bytes) {
    stages.push_back(format_bytes(static_cast<uint64_t>(bytes)));
  }
  if (stages.size() > 1) return fmt::format("memory by stage {}", fmt::join(stages, " + "));
  const std::string each =
      start.devices > 1 ? fmt::format(" on each of {} devices", start.devices) : "";
  return fmt::format("{} of memory{}", fmt::join(stages, ""), each);
}

ProgressPrinter::ProgressPrinter(bool quiet) : quiet_(quiet), terminal_(::isatty(STDOUT_FILENO)) {}

void ProgressPrinter::finish() {
  if (live_) std::fputs("\n", stdout);
  live_ = false;
  std::fflush(stdout);
}

void ProgressPrinter::on_activity(std::string_view what) {
  if (quiet_ || !terminal_) return;
  std::string line(what);
  line[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(line[0])));
  fmt::print("\r\033[K{} ...", line);
  live_ = true;
  std::fflush(stdout);
}

void ProgressPrinter::on_start(const train::JobStart& start) {
  context_.steps_per_epoch = start.steps_per_epoch;
  print_line(fmt::format("{}: batch {}, {} {}, {} {}, {}, {}", start.model, start.batch,
                         start.total_steps, start.total_steps == 1 ? "step" : "steps",
                         start.threads, start.threads == 1 ? "thread" : "threads",
                         describe_memory(start), start.arithmetic));
}

void ProgressPrinter::on_step(const train::StepReport& report) {
  if (quiet_) return;
  seconds_ += report.seconds;
  waited_ += report.wait_seconds;
  const auto now = std::chrono::steady_clock::now();
  const bool last = report.step == report.total_steps;
  const auto interval = terminal_ ? std::chrono::nanoseconds(kLiveInterval) : kPlainInterval;
  if (!last && now - last_print_ < interval) return;
  last_print_ = now;
  context_.waited = seconds_ > 0 ? waited_ / seconds_ : 0;
  seconds_ = waited_ = 0;
  const std::string line = describe_step(report, context_);
  if (!terminal_ || last) return print_line(line);
  fmt::print("\r\033[K{}", line);
  live_ = true;
  std::fflush(stdout);
}

void ProgressPrinter::on_evaluation(const train::EvaluationReport& report) {
  const bool is_best = report.best && report.best != context_.best &&
                       report.figure(report.best->metric) == *report.best;
  context_.best = report.best;
  print_line(fmt::format("step {}: {}, {}{}", report.step, report.seen(), report.text(),
                         is_best ? " (best so far)" : ""));
}

void ProgressPrinter::on_checkpoint(const train::CheckpointReport& report) {
  print_line(fmt::format("step {}: checkpoint '{}', {} in {:.1f} s", report.step,
                         report.directory.string(), format_bytes(report.bytes), report.seconds));
}

void ProgressPrinter::on_message(train::Severity severity, std::string_view sentence) {
  if (severity == train::Severity::note) return print_line(with_flags(sentence));
  if (!warned_.insert(std::string(sentence)).second) return;
  clear_live_line();
  print_error("millrace: warning: {}\n", with_flags(sentence));
}

void ProgressPrinter::print_line(const std::string& line) {
  if (quiet_) return;
  clear_live_line();
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void ProgressPrinter::clear_live_line() {
  if (live_) std::fputs("\r\033[K", stdout);
  live_ = false;
  std::fflush(stdout);
}

}  // namespace millrace::cli
