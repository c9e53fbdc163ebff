// millrace tune: measures convolutions, for those who want the last few percent.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/standard_files.h"
#include "profile/tuning.h"

namespace millrace::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  Measure the convolutions of a job; give the flags of `millrace train`:
    millrace tune --model resnet50 --batch 64
  Those of every network, each with its usual images:
    millrace tune --all --batch 16

Jobs choose the method of each convolution by costs that come with Millrace, and start at once. What
was measured here counts more from then on, for the same model of processor, instructions, threads
and version of oneDNN. It may be interrupted: what was measured is kept, and the same command goes
on. Exit status: 0 success, 1 failed, 2 bad usage or input, 130 interrupted.)";

struct TuneFlags {
  JobFlags job;
  bool all = false;
  bool again = false;
  std::string summary;
};

std::vector<train::TrainJob> jobs_of(const TuneFlags& flags) {
  std::vector<std::string> models = {flags.job.model};
  if (flags.all) models = models::model_names();
  std::vector<train::TrainJob> jobs;
  for (const std::string& model : models) {
    JobFlags job_flags = flags.job;
    job_flags.model = model;
    train::TrainJob job = to_job(job_flags);
    if (job.steps == 0 && job.epochs == 0) job.steps = 1;
    train::check(job);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// Says on standard error how far it is, and what an interruption would keep.
class TuningPrinter {
 public:
  TuningPrinter(Interruption& interruption, std::string cache)
      : interruption_(interruption), cache_(std::move(cache)) {}

  void tell(const profile::TuningProgress& progress) {
    interruption_.end_at_once(fmt::format(
        "Interrupted; {} of {} convolutions are measured and kept in '{}'. Give the same command "
        "to go on.",
        progress.done, progress.count, cache_));
    if (progress.count == 0) return;
    const auto now = std::chrono::steady_clock::now();
    const bool last = progress.done == progress.count;
    if (!last && progress.done > 0 && now - printed_ < (terminal_ ? kLive : kPlain)) return;
    printed_ = now;
    std::string line = fmt::format("{} of {} convolutions measured", progress.done, progress.count);
    if (progress.done > 0 && !last) {
      line += fmt::format(", {} left", format_duration(progress.seconds_left));
    }
    print_error("{}{}{}", terminal_ ? "\r\033[K" : "", line, terminal_ && !last ? "" : "\n");
  }

 private:
  static constexpr std::chrono::milliseconds kLive{100};
  static constexpr std::chrono::milliseconds kPlain{5000};

  Interruption& interruption_;
  std::string cache_;
  bool terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point printed_ = {};
};

void print_gain(const std::vector<profile::TunedConvolution>& tuned) {
  double before = 0;
  double after = 0;
  size_t changed = 0;
  for (const profile::TunedConvolution& convolution : tuned) {
    before += convolution.seconds.at(convolution.before);
    after += convolution.seconds.at(convolution.after);
    if (convolution.before == convolution.after) continue;
    ++changed;
    fmt::print("  {} {} -> {}: {} instead of {}, {:.3g} ms instead of {:.3g}\n",
               convolution.problem["direction"].get<std::string>(), convolution.problem["x"].dump(),
               convolution.problem["y"].dump(), convolution.after, convolution.before,
               1e3 * convolution.seconds.at(convolution.after),
               1e3 * convolution.seconds.at(convolution.before));
  }
  if (tuned.empty()) {
    fmt::print("Everything was measured before; --again measures once more.\n");
    return;
  }
  fmt::print(
      "{} of {} convolutions are computed in another way; all of them, once each, take {:.4g} "
      "s instead of {:.4g} s ({:.1f} % less).\n",
      changed, tuned.size(), after, before, 100 * (1 - after / before));
}

int run_tune(const TuneFlags& flags, Interruption& interruption) {
  if (flags.all != flags.job.model.empty()) {
    fail_input("Say what to tune: either --model NAME or --all.");
  }
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  profile::TuningRequest request;
  request.jobs = jobs_of(flags);
  request.again = flags.again;
  kernels::ConvolutionChoices choices(kernels::ConvolutionChoices::default_path());
  TuningPrinter printer(interruption, choices.cache_file().string());
  request.progress = [&](const profile::TuningProgress& progress) { printer.tell(progress); };
  ProgressPrinter messages(false);
  messages.on_activity("looking for convolutions");
  const std::vector<profile::TunedConvolution> tuned = profile::tune(request, choices, messages);
  messages.finish();
  print_gain(tuned);
  if (!flags.summary.empty()) write_text(flags.summary, profile::to_json(tuned).dump(1) + "\n");
  if (!choices.warning().empty()) messages.on_message(train::Severity::warning, choices.warning());
  if (choices.cache_file().empty()) fail_job("Nothing is kept, as there is no home directory.");
  return kExitSuccess;
}

}  // namespace

void add_tune_command(CLI::App& program, Action& chosen, Interruption& interruption) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = program.add_subcommand(
      "tune", "Measure the convolutions of a job here, and use the fastest from then on");
  add_model_flags(*command, flags->job);
  command->get_option("--model")->required(false);
  add_training_flags(*command, flags->job);
  add_device_flags(*command, flags->job);
  command->add_flag("--all", flags->all, "Every network instead of --model")->group("Tune");
  command->add_flag("--again", flags->again, "Also what was measured before")->group("Tune");
  command
      ->add_option("--summary", flags->summary,
                   "Write every measurement to this file, as tools/fit-convolutions reads it")
      ->group("Output");
  command->footer(kExamples);
  command->callback([flags, &chosen, &interruption] {
    chosen = [flags, &interruption] { return run_tune(*flags, interruption); };
  });
}

}  // namespace millrace::cli
