#include "cli/plan_check.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "cli/subprocess.h"
#include "comm/mpi_group.h"
#include "profile/check.h"
#include "profile/prediction_here.h"
#include "runtime/trace_file.h"
#include "train/metrics.h"
#include "train/plan.h"
#include "train/summary.h"

namespace millrace::cli {
namespace {

constexpr const char* kCheckGroup = "On this machine";
constexpr int kMostRounds = 1000;

std::string bytes_of(const Json& number) { return format_bytes(number.get<uint64_t>()); }

void print_report(const Json& report) {
  const double predicted = report["predicted_step_seconds"].get<double>();
  fmt::print(
      "Predicted {:.4g} s per step, {:.4g} samples/s, from a profile of its programs, give or take "
      "{:.1f} %; devices idle {:.1f} % of the time.\n",
      predicted, report["predicted_samples_per_second"].get<double>(),
      100 * report["error_estimate"].get<double>(), 100 * report["bubble"].get<double>());
  for (const Json& device : report["devices"]) {
    fmt::print("  device {}, stage {}: {}{}\n", device["id"].get<std::string>(),
               device["stage"].get<int>(), bytes_of(device["peak_bytes"]),
               device.contains("measured_peak_bytes")
                   ? ", measured " + bytes_of(device["measured_peak_bytes"])
                   : "");
  }
  if (!report.contains("measured_step_seconds")) return;
  fmt::print(
      "Measured  {:.4g} s per step (from {:.4g} to {:.4g}): the prediction is {:+.1f} % "
      "off.\n",
      report["measured_step_seconds"].get<double>(), report["measured_min_seconds"].get<double>(),
      report["measured_max_seconds"].get<double>(), 100 * report["error"].get<double>());
  if (!report.contains("measured_rss_bytes")) return;
  fmt::print("Memory of the process: predicted {}, measured {} ({:+.1f} %).\n",
             bytes_of(report["process_rss_bytes"]), bytes_of(report["measured_rss_bytes"]),
             100 * report["rss_error"].get<double>());
}

Json predict(const train::TrainJob& job, const profile::MeasureOptions& options,
             const CheckFiles& files, bool speaks) {
  ProgressPrinter messages(true);
  const profile::HerePrediction prediction =
      files.profile.empty()
          ? profile::predict_here(job, options, messages)
          : profile::predict_here(
                job, profile::parse_job_profile(read_text(files.profile), files.profile),
                files.profile, messages);
  if (!files.trace.empty() && speaks) {
    runtime::write_trace(files.trace, simulate::trace_log(prediction.simulation, prediction.result),
                         true);
  }
  return profile::to_json(prediction);
}

// The files of a run that has a directory, as `millrace report` finds them by what they hold.
struct RunDirectory {
  std::filesystem::path path;  // empty: nothing is written

  explicit RunDirectory(const std::string& directory) : path(directory) {
    if (path.empty()) return;
    make_directory(path, "--run");
    require_writable(path / "plan.json", "--run");
  }

  std::string file(const char* name) const {
    return path.empty() ? std::string() : (path / name).string();
  }

  void write(const char* name, const Json& json) const {
    if (!path.empty()) write_text(path / name, json.dump(2) + "\n");
  }
};

train::TrainResult measure(train::TrainJob& job, const RunDirectory& directory, bool speaks) {
  job.trace = directory.file("trace.json");
  if (!speaks) {
    train::TrainingObserver silent;
    return train::run_training(job, silent);
  }
  train::ObserverList observers;
  ProgressPrinter messages(true);
  observers.add(messages);
  std::unique_ptr<train::MetricsWriter> metrics;
  if (!directory.path.empty()) {
    metrics = std::make_unique<train::MetricsWriter>(directory.file("metrics.jsonl"));
    observers.add(*metrics);
  }
  train::TrainResult result = train::run_training(job, observers);
  if (metrics && !metrics->failure().empty()) fail_job("{}", metrics->failure());
  return result;
}

}  // namespace

void add_check_flags(CLI::App& command, CheckFlags& flags) {
  command
      .add_flag("--predict,--profile-here", flags.predict,
                "Measure the job's programs on the devices here and simulate its steps from that")
      ->group(kCheckGroup);
  command
      .add_flag("--check", flags.check,
                "Predict, then run the job for --steps steps [5] and tell how near that came")
      ->group(kCheckGroup);
  command.add_option("--rounds", flags.rounds, "How often each program is measured")
      ->group(kCheckGroup)
      ->capture_default_str();
  command
      .add_option("--run", flags.run,
                  "Write what was predicted and measured, with both timelines, into this directory "
                  "for `millrace report`")
      ->group(kCheckGroup);
}

Json predict_in_child(const train::TrainJob& job, const profile::MeasureOptions& options,
                      const CheckFiles& files) {
  return Json::parse(in_child([&] { return predict(job, options, files, true).dump(); }));
}

double train_in_child(const train::TrainJob& job, int64_t steps) {
  return Json::parse(in_child([&] {
           train::TrainJob trial = job;
           trial.steps = steps;
           const train::TrainResult result = measure(trial, RunDirectory({}), false);
           return train::summary_of(trial, result)["seconds_per_step"]["median"].dump();
         }))
      .get<double>();
}

void check(const CheckFlags& flags) {
  if (flags.rounds >= 1 && flags.rounds <= kMostRounds) return;
  fail_input("--rounds is {}; give 1 to {}.", flags.rounds, kMostRounds);
}

int run_check(const CheckFlags& flags, train::TrainJob job, CheckFiles files, bool json) {
  check(flags);
  const bool alone = job.processes == nullptr;
  const bool speaks = alone || job.processes->rank() == 0;
  const RunDirectory directory(flags.run);
  if (!files.trace.empty() && speaks) require_writable(files.trace, "--trace");
  if (files.trace.empty()) files.trace = directory.file("predicted_trace.json");
  const profile::MeasureOptions options = {.rounds = flags.rounds};
  Json report;
  if (alone) {
    report = predict_in_child(job, options, files);
  } else {
    report = predict(job, options, files, speaks);
  }
  report["model"] = job.model;
  report["global_batch"] = job.options.batch;
  report["plan"] = parallel::to_json(train::plan_file_of(job));
  if (flags.check) {
    const train::TrainResult result = measure(job, directory, speaks);
    report = profile::compare(job, std::move(report), result, alone);
    if (speaks) directory.write("summary.json", train::summary_of(job, result));
  }
  if (!speaks) return kExitSuccess;
  directory.write("plan.json", report);
  if (json) {
    fmt::print("{}\n", report.dump(2));
  } else {
    print_report(report);
    if (!flags.run.empty()) {
      fmt::print("Look at it: millrace report {0} -o {0}/report\n", flags.run);
    }
  }
  return kExitSuccess;
}

}  // namespace millrace::cli
