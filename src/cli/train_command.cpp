#include <fmt/ranges.h>

#include <memory>

#include "api/job.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/card_flags.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/flag_numbers.h"
#include "cli/hosts.h"
#include "cli/interruptible_job.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/restarts.h"
#include "cli/standard_files.h"
#include "comm/launcher.h"
#include "comm/mpi_group.h"
#include "train/event_writer.h"
#include "train/job_classes.h"
#include "train/metrics.h"
#include "train/summary.h"

namespace millrace::cli {
namespace {

constexpr const char* kTrainExamples = R"(Examples:
  Ten steps on random images, to see speed and memory:
    millrace train --model resnet50 --batch 64 --steps 10 --summary out.json
  Fashion-MNIST with test accuracy after each epoch:
    millrace train --model fashion_cnn --data idx:DIR --eval-data idx:DIR --eval-every 1e \
      --batch 128 --epochs 8 --lr 0.1 --lr-schedule cosine --lr-warmup-steps 200
  A long job that survives interruptions; the same command continues it:
    millrace train --model resnet50 --data ofrecord:DIR --batch 64 --epochs 90 \
      --lr-schedule step --lr-milestones 150000,300000,400000 \
      --checkpoint runs/r50 --checkpoint-every 1000 --resume

Ctrl-C, SIGTERM and SIGHUP finish the step, save a checkpoint if there is a --checkpoint, and end;
a second one ends at once.
Exit status: 0 success, 1 the job failed, 2 bad usage or input, 130 interrupted and saved.)";

constexpr int64_t kShownPredictions = 8;  // of an evaluation, in TensorBoard

struct TrainFlags {
  JobFlags job;
  std::string load_weights, new_layers, save_weights;
  std::string checkpoint, checkpoint_every;
  int keep = 2;
  int restarts = 0;
  bool elastic = false;
  bool resume = false;
  std::string evaluation_data, evaluation_every, metric;
  std::vector<std::string> verification;
  double average_decay = 0;
  int64_t patience = 0;
  std::string summary, metrics, trace, tensorboard;
  std::string hosts;
  std::vector<std::string> configs;
  std::string fine_tune, given;  // all that was given, as YAML
  bool print_config = false;
  bool quiet = false;
};

void add_flags(CLI::App& command, TrainFlags& flags) {
  add_model_flags(command, flags.job);
  add_data_flags(command, flags.job);
  add_training_flags(command, flags.job);
  add_device_flags(command, flags.job);
  add_backend_flags(command, flags.job);
  const auto add = [&](const char* group, const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(group);
  };
  add("Device and memory", "--hosts", flags.hosts,
      "Run on these hosts, joined by MPI: a,b for a rank on each, a:2,b for two on a; this "
      "program, "
      "its files and its data must be in the same places on all of them");
  add("Weights", "--load-weights", flags.load_weights,
      "Start from these weights, under torchvision's or InsightFace's names: safetensors, an index "
      "of "
      "several, or a PyTorch file (.pth, .pt), in which nothing is executed");
  add("Weights", "--new-layers", flags.new_layers,
      "Layers that do not take the loaded weights but start anew: auto (those of another shape or "
      "not in the file) or patterns such as fc,layer4.*");
  add("Weights", "--save-weights", flags.save_weights, "Write the weights there at the end");
  add("Checkpoints", "--checkpoint", flags.checkpoint,
      "Directory for checkpoints, from which --resume continues bit for bit; takes memory for a "
      "second copy of weights and optimizer state");
  add("Checkpoints", "--checkpoint-every", flags.checkpoint_every,
      "Save every N steps (500) or N epochs (2e); always at the end and when interrupted");
  add("Checkpoints", "--keep", flags.keep, "How many of the newest to keep, besides the best")
      ->capture_default_str();
  command
      .add_flag("--resume", flags.resume,
                "Continue from the newest intact checkpoint, or start if there is none")
      ->group("Checkpoints");
  add("Checkpoints", "--restarts", flags.restarts,
      "When the job fails or a rank of --hosts is lost, go on from the newest checkpoint by "
      "itself, "
      "at most so many times")
      ->check(between(0, 1000000))
      ->capture_default_str();
  command
      .add_flag("--elastic", flags.elastic,
                "With --restarts and --hosts: go on without hosts that do not answer, with larger "
                "batches on the others, so that a step has as many samples as before")
      ->group("Checkpoints");
  add("Evaluation", "--eval-data", flags.evaluation_data,
      "Data set to measure accuracy on, written as --data");
  add("Evaluation", "--valid-share", flags.job.valid_share,
      "Or hold back this share of --data, the same for the same seed: 0.2")
      ->capture_default_str();
  add("Length", "--global-batch", flags.job.global_batch,
      "Samples per step of all devices together, instead of --batch");
  add("Evaluation", "--eval-verification", flags.verification,
      "Pairs of faces in InsightFace's .bin format to tell apart, several files with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("Evaluation", "--eval-every", flags.evaluation_every,
      "Measure every N steps (500) or N epochs (1e); always at the end [1e]");
  add("Evaluation", "--ema", flags.average_decay,
      "Average the weights of all steps with this decay (0.999), and measure, keep and export the "
      "average; 0 does not")
      ->capture_default_str();
  const std::string metrics = fmt::format(
      "What the best checkpoint, which is kept, is best in: {}; or verification/NAME, one of "
      "several "
      "sets [top1; verification where only that is measured]",
      fmt::join(train::metric_names(), ", "));
  add("Evaluation", "--metric", flags.metric, metrics.c_str());
  add("Evaluation", "--patience", flags.patience,
      "End after so many evaluations without a better figure; 0 never does")
      ->capture_default_str();
  add("Output", "--summary", flags.summary, "Write the results there as one JSON object");
  add("Output", "--metrics", flags.metrics, "Write one JSON object per step there");
  add("Output", "--tensorboard", flags.tensorboard,
      "Write loss, accuracy, learning rate, speed and the worst predictions of evaluations into "
      "this "
      "directory for TensorBoard");
  add("Output", "--trace", flags.trace,
      "Write what every device did when there, for `millrace report` and ui.perfetto.dev");
  add("Configuration", "--config", flags.configs,
      "A YAML file of flags, 'lr: 0.1'; may be repeated, later files win, flags win over all")
      ->allow_extra_args(false);
  add("Configuration", "--fine-tune", flags.fine_tune,
      "Start from this file of weights, with settings for fine-tuning where no flag says "
      "otherwise: "
      "--new-layers auto, --lr 0.005 (0.0001 with adamw), --lr-schedule cosine, --label-smoothing "
      "0.1; with --head, --head-lr 0.1 (0.001) instead of the last");
  command
      .add_flag("--print-config", flags.print_config,
                "Print all settings as such a file, and do nothing else")
      ->group("Configuration");
  command.add_flag("--quiet", flags.quiet, "Print nothing but warnings")->group("Output");
}

train::TrainJob to_train_job(const TrainFlags& flags, comm::MpiSession* session) {
  train::TrainJob job = to_job(flags.job, session == nullptr ? 1 : session->size());
  job.processes = session;
  job.load_weights = flags.load_weights;
  if (!flags.new_layers.empty()) job.new_layers = train::parse_new_layers(flags.new_layers);
  job.save_weights = flags.save_weights;
  job.trace = flags.trace;
  job.checkpoint = flags.checkpoint;
  if (!flags.checkpoint_every.empty()) {
    job.checkpoint_every = train::parse_interval(flags.checkpoint_every, "--checkpoint-every");
  }
  job.keep = flags.keep;
  job.resume = flags.resume;
  job.evaluation_data = flags.evaluation_data;
  job.verification = {flags.verification.begin(), flags.verification.end()};
  if (job.data.valid_share > 0) {
    if (!job.evaluation_data.empty()) {
      fail_input("--eval-data and --valid-share both say what to evaluate on; choose one.");
    }
    if (job.data.source == "synthetic") {
      fail_input("--valid-share needs --data with images to hold back.");
    }
    job.evaluation_data = job.data.source;
  } else {
    train::follow_evaluation_data(job, true);
  }
  if (!flags.evaluation_every.empty()) {
    job.evaluation_every = train::parse_interval(flags.evaluation_every, "--eval-every");
  } else if (job.evaluates() && job.data.source != "synthetic") {
    job.evaluation_every = {.steps = 0, .epochs = 1};
  }
  if (!(flags.average_decay >= 0) || flags.average_decay >= 1) {
    fail_input("--ema is {}; give a decay from 0 to below 1.", flags.average_decay);
  }
  job.average_decay = flags.average_decay;
  job.metric = flags.metric;
  if (job.metric.empty()) {
    job.metric = job.evaluation_data.empty() && !job.verification.empty()
                     ? train::kVerificationMetric
                     : "top1";
  }
  train::metric_named(job.metric);
  if (flags.patience < 0) fail_input("--patience is {}; give 0 or more.", flags.patience);
  job.patience = flags.patience;
  train::check(job);
  return job;
}

// Keeps what was asked for beside the checkpoints, as soon as the job begins.
class JobFile : public train::TrainingObserver {
 public:
  JobFile(std::filesystem::path directory, std::string text)
      : directory_(std::move(directory)), text_(std::move(text)) {}

  void on_start(const train::JobStart&) override {
    if (!directory_.empty()) write_text(file(), text_);
  }

  // Somebody may have removed the directory meanwhile.
  void on_checkpoint(const train::CheckpointReport&) override {
    std::error_code ignored;
    if (std::filesystem::exists(file(), ignored)) return;
    try {
      write_text(file(), text_);
    } catch (const InputError& error) {
      print_error("millrace: warning: {}\n", marked_text(error));
    }
  }

 private:
  std::filesystem::path file() const { return directory_ / "job.yaml"; }

  std::filesystem::path directory_;
  std::string text_;
};

// The last line of an interrupted job.
void print_interruption(const train::RunSettings& job, const train::TrainResult& result) {
  std::string kept = "nothing was saved, as there is no --checkpoint.";
  if (!job.checkpoint.empty()) {
    kept = fmt::format("saved in '{}': {} to continue.", job.checkpoint.string(),
                       job.resume ? "give the same command" : "add --resume");
  } else if (!job.save_weights.empty()) {
    kept = fmt::format("the weights alone were saved in '{}', as there is no --checkpoint.",
                       job.save_weights.string());
  }
  print_error("millrace: Stopped after step {} of {}; {}\n", result.step, result.total_steps, kept);
}

void print_end(const train::TrainResult& result, const TrainFlags& flags) {
  if (result.skipped_records > 0) {
    fmt::print("Bad records were skipped, {} time{} in all:\n", result.skipped_records,
               result.skipped_records == 1 ? "" : "s");
    for (const std::string& sentence : result.skipped) fmt::print("  {}\n", on_one_line(sentence));
  }
  if (!flags.summary.empty()) fmt::print("Summary: {}\n", flags.summary);
  if (!flags.metrics.empty()) fmt::print("Metrics: {}\n", flags.metrics);
  if (!flags.save_weights.empty()) fmt::print("Weights: {}\n", flags.save_weights);
}

ElasticJob to_elastic(const TrainFlags& flags) {
  if (flags.hosts.empty()) {
    fail_input("--elastic goes on without hosts that are lost; give --hosts.");
  }
  if (!flags.job.plan.placement.empty() || !flags.job.plan.plan_file.empty()) {
    fail_input(
        "--elastic divides a step anew over the devices that are left, but {} says which devices "
        "there are; leave one of the two out.",
        flags.job.plan.placement.empty() ? "--plan" : "--placement");
  }
  return {parse_hosts(flags.hosts), flags.job.batch, std::max(1, flags.job.plan.devices)};
}

int run_supervised(const TrainFlags& flags, Interruption& interruption) {
  if (comm::launched_ranks() > 1) {
    fail_input("--restarts starts the ranks again itself; leave out mpirun and give --hosts.");
  }
  if (flags.checkpoint.empty()) {
    fail_input("--restarts goes on from checkpoints; give --checkpoint and --checkpoint-every.");
  }
  Restarts restarts = {flags.restarts, flags.checkpoint, own_arguments(), {}};
  if (flags.elastic) restarts.elastic = to_elastic(flags);
  return run_restarting(restarts, interruption);
}

int run_train(const TrainFlags& flags, comm::MpiSession* session, Interruption& interruption) {
  if (flags.print_config) {
    fmt::print("{}", flags.given);
    return kExitSuccess;
  }
  if (flags.elastic && flags.restarts == 0) {
    fail_input("--elastic says how a job is restarted; give --restarts too.");
  }
  if (flags.restarts > 0) return run_supervised(flags, interruption);
  if (!flags.hosts.empty()) start_on_hosts(flags.hosts);
  train::TrainJob job = to_train_job(flags, session);
  const bool speaks = session == nullptr || session->rank() == 0;
  if (speaks) {
    if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
    if (!flags.metrics.empty()) require_writable(flags.metrics, "--metrics");
    if (!flags.trace.empty()) require_writable(flags.trace, "--trace");
    if (!flags.save_weights.empty()) require_safetensors(flags.save_weights, "--save-weights");
  }
  if (!flags.tensorboard.empty()) job.worst_samples = kShownPredictions;
  job.stop = &interruption.stop();
  InterruptibleJob interruptible(job, interruption);
  if (!speaks) {
    const api::Run run = api::Job(job).train(interruptible);
    return run.result().interrupted ? kExitInterrupted : kExitSuccess;
  }

  train::ObserverList observers;
  ProgressPrinter progress(flags.quiet);
  observers.add(progress);
  observers.add(interruptible);
  JobFile job_file(job.checkpoint, flags.given);
  observers.add(job_file);
  std::unique_ptr<train::MetricsWriter> metrics;
  if (!flags.metrics.empty()) {
    metrics = std::make_unique<train::MetricsWriter>(flags.metrics);
    observers.add(*metrics);
  }
  std::unique_ptr<train::EventWriter> events;
  if (!flags.tensorboard.empty()) {
    events = std::make_unique<train::EventWriter>(flags.tensorboard, flags.given);
    observers.add(*events);
  }
  const train::TrainResult result = api::Job(job).train(observers).result();
  if (!flags.summary.empty()) {
    try {
      write_text(flags.summary, train::summary_of(job, result).dump(2) + "\n");
    } catch (const InputError& error) {
      fail_job("{}", error.marked());
    }
  }
  progress.finish();
  if (!flags.quiet) print_end(result, flags);
  if (!result.checkpoint_failure.empty()) {
    fail_job("The last checkpoint was not written: {}", result.checkpoint_failure);
  }
  if (metrics && !metrics->failure().empty()) fail_job("{}", metrics->failure());
  if (events && !events->failure().empty()) fail_job("{}", events->failure());
  if (!result.interrupted) return kExitSuccess;
  print_interruption(job, result);
  return kExitInterrupted;
}

}  // namespace

void add_train_command(CLI::App& program, Action& chosen, comm::MpiSession* session,
                       Interruption& interruption) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = program.add_subcommand("train", "Train a model");
  add_flags(*command, *flags);
  command->footer(kTrainExamples);
  command->callback([flags, &chosen, session, &interruption, command] {
    flags->given = flags->print_config ? settings_as_yaml(*command) : given_as_yaml(*command);
    chosen = [flags, session, &interruption] { return run_train(*flags, session, interruption); };
  });
}

}  // namespace millrace::cli
