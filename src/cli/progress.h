// Shows a running job on the terminal.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "train/observer.h"

namespace millrace::cli {

// What a line of progress tells besides its step.
struct StepContext {
  int64_t steps_per_epoch = 0;
  double waited = 0;                         // share of the time since the last line, for data
  std::optional<train::Measured> best = {};  // of the evaluations so far
};

// On a terminal, one line that is written again after each step; elsewhere a plain line every
// few seconds. Warnings go to standard error, each once. Quiet: warnings only.
class ProgressPrinter : public train::TrainingObserver {
 public:
  explicit ProgressPrinter(bool quiet);
  ~ProgressPrinter() override { finish(); }

  // Ends the live line, which stays.
  void finish();

  // On a terminal alone.
  void on_activity(std::string_view what) override;
  void on_start(const train::JobStart& start) override;
  void on_step(const train::StepReport& report) override;
  void on_evaluation(const train::EvaluationReport& report) override;
  void on_checkpoint(const train::CheckpointReport& report) override;
  void on_message(train::Severity severity, std::string_view sentence) override;

 private:
  // A line that stays; the live line moves below it.
  void print_line(const std::string& line);
  void clear_live_line();

  bool quiet_;
  bool terminal_;
  bool live_ = false;
  StepContext context_;
  std::set<std::string> warned_;
  double seconds_ = 0, waited_ = 0;  // of the steps since the last line
  std::chrono::steady_clock::time_point last_print_;
};

// "1.25 GiB of memory on each of 4 devices", or that of every stage.
std::string describe_memory(const train::JobStart& start);

// The figures of a step as the progress shows them.
std::string describe_step(const train::StepReport& report, const StepContext& context);

}  // namespace millrace::cli
