#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/hosts.h"
#include "cli/interruptible_job.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/restarts.h"
#include "comm/launcher.h"
#include "comm/mpi_group.h"
#include "train/job_classes.h"
#include "train/metrics.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace millrace {
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

struct TrainFlags {
  JobFlags job;
  std::string load_weights, new_layers, save_weights;
  std::string checkpoint, checkpoint_every;
  int keep = 2;
  int restarts = 0;
  bool resume = false;
  std::string evaluation_data, evaluation_every, metric = "top1";
  int64_t patience = 0;
  std::string summary, metrics, trace;
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
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  add("Evaluation", "--eval-data", flags.evaluation_data,
      "Data set to measure accuracy on, written as --data");
  add("Evaluation", "--valid-share", flags.job.valid_share,
      "Or hold back this share of --data, the same for the same seed: 0.2")
      ->capture_default_str();
  add("Evaluation", "--eval-every", flags.evaluation_every,
      "Measure every N steps (500) or N epochs (1e); always at the end [1e]");
  add("Evaluation", "--metric", flags.metric,
      "What the best checkpoint, which is kept, is best in: top1, top5 or loss")
      ->capture_default_str();
  add("Evaluation", "--patience", flags.patience,
      "End after so many evaluations without a better figure; 0 never does")
      ->capture_default_str();
  add("Output", "--summary", flags.summary, "Write the results there as one JSON object");
  add("Output", "--metrics", flags.metrics, "Write one JSON object per step there");
  add("Output", "--trace", flags.trace,
      "Write what every device did when there, for `millrace report` and ui.perfetto.dev");
  add("Configuration", "--config", flags.configs,
      "A YAML file of flags, 'lr: 0.1'; may be repeated, later files win, flags win over all")
      ->allow_extra_args(false);
  add("Configuration", "--fine-tune", flags.fine_tune,
      "Start from this file of weights, with settings for fine-tuning where no flag says "
      "otherwise: "
      "--new-layers auto, --lr 0.005 (0.0001 with adamw), --lr-schedule cosine, --label-smoothing "
      "0.1");
  command
      .add_flag("--print-config", flags.print_config,
                "Print all settings as such a file, and do nothing else")
      ->group("Configuration");
  command.add_flag("--quiet", flags.quiet, "Print nothing but warnings")->group("Output");
}

TrainJob to_train_job(const TrainFlags& flags, MpiSession* session) {
  TrainJob job = to_job(flags.job, session == nullptr ? 1 : session->size());
  job.processes = session;
  job.load_weights = flags.load_weights;
  if (!flags.new_layers.empty()) job.new_layers = parse_new_layers(flags.new_layers);
  job.save_weights = flags.save_weights;
  job.trace = flags.trace;
  job.checkpoint = flags.checkpoint;
  if (!flags.checkpoint_every.empty()) {
    job.checkpoint_every = parse_interval(flags.checkpoint_every, "--checkpoint-every");
  }
  job.keep = flags.keep;
  job.resume = flags.resume;
  job.evaluation_data = flags.evaluation_data;
  if (job.data.valid_share > 0) {
    if (!job.evaluation_data.empty()) {
      fail_input("--eval-data and --valid-share both say what to evaluate on; choose one.");
    }
    if (job.data.source == "synthetic") {
      fail_input("--valid-share needs --data with images to hold back.");
    }
    job.evaluation_data = job.data.source;
  } else {
    follow_evaluation_data(job, true);
  }
  if (!flags.evaluation_every.empty()) {
    job.evaluation_every = parse_interval(flags.evaluation_every, "--eval-every");
  } else if (!job.evaluation_data.empty() && job.data.source != "synthetic") {
    job.evaluation_every = {.steps = 0, .epochs = 1};
  }
  job.metric = parse_metric(flags.metric);
  if (flags.patience < 0) fail_input("--patience is {}; give 0 or more.", flags.patience);
  job.patience = flags.patience;
  check(job);
  return job;
}

// Keeps what was asked for beside the checkpoints, as soon as the job begins.
class JobFile : public TrainingObserver {
 public:
  JobFile(std::filesystem::path directory, std::string text)
      : directory_(std::move(directory)), text_(std::move(text)) {}

  void on_start(const JobStart&) override {
    if (!directory_.empty()) write_text(directory_ / "job.yaml", text_);
  }

 private:
  std::filesystem::path directory_;
  std::string text_;
};

// The last line of an interrupted job.
void print_interruption(const TrainJob& job, const TrainResult& result) {
  std::string kept = "nothing was saved, as there is no --checkpoint.";
  if (!job.checkpoint.empty()) {
    kept = fmt::format("saved in '{}': {} to continue.", job.checkpoint.string(),
                       job.resume ? "give the same command" : "add --resume");
  } else if (!job.save_weights.empty()) {
    kept = fmt::format("the weights alone were saved in '{}', as there is no --checkpoint.",
                       job.save_weights.string());
  }
  fmt::print(stderr, "millrace: Stopped after step {} of {}; {}\n", result.step, result.total_steps,
             kept);
}

void print_end(const TrainResult& result, const TrainFlags& flags) {
  if (result.skipped_records > 0) {
    fmt::print("{} bad records were skipped:\n", result.skipped_records);
    for (const std::string& sentence : result.skipped) fmt::print("  {}\n", sentence);
  }
  if (!flags.summary.empty()) fmt::print("Summary: {}\n", flags.summary);
  if (!flags.metrics.empty()) fmt::print("Metrics: {}\n", flags.metrics);
  if (!flags.save_weights.empty()) fmt::print("Weights: {}\n", flags.save_weights);
}

int run_supervised(const TrainFlags& flags, Interruption& interruption) {
  if (launched_ranks() > 1) {
    fail_input("--restarts starts the ranks again itself; leave out mpirun and give --hosts.");
  }
  if (flags.checkpoint.empty()) {
    fail_input("--restarts goes on from checkpoints; give --checkpoint and --checkpoint-every.");
  }
  return run_restarting({flags.restarts, flags.checkpoint, own_arguments()}, interruption);
}

int run_train(const TrainFlags& flags, MpiSession* session, Interruption& interruption) {
  if (flags.print_config) {
    fmt::print("{}", flags.given);
    return kExitSuccess;
  }
  if (flags.restarts > 0) return run_supervised(flags, interruption);
  if (!flags.hosts.empty()) start_on_hosts(flags.hosts);
  TrainJob job = to_train_job(flags, session);
  const bool speaks = session == nullptr || session->rank() == 0;
  if (speaks) {
    if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
    if (!flags.metrics.empty()) require_writable(flags.metrics, "--metrics");
    if (!flags.trace.empty()) require_writable(flags.trace, "--trace");
    if (!flags.save_weights.empty()) require_writable(flags.save_weights, "--save-weights");
  }
  job.stop = &interruption.stop();
  InterruptibleJob interruptible(job, interruption);
  if (!speaks) {
    return run_training(job, interruptible).interrupted ? kExitInterrupted : kExitSuccess;
  }

  ObserverList observers;
  ProgressPrinter progress(flags.quiet);
  observers.add(progress);
  observers.add(interruptible);
  JobFile job_file(job.checkpoint, flags.given);
  observers.add(job_file);
  std::unique_ptr<MetricsWriter> metrics;
  if (!flags.metrics.empty()) {
    metrics = std::make_unique<MetricsWriter>(flags.metrics);
    observers.add(*metrics);
  }
  const TrainResult result = run_training(job, observers);
  if (!flags.summary.empty()) {
    try {
      write_text(flags.summary, summary_of(job, result).dump(2) + "\n");
    } catch (const InputError& error) {
      fail_job("{}", error.what());
    }
  }
  progress.finish();
  if (!flags.quiet) print_end(result, flags);
  if (!result.checkpoint_failure.empty()) {
    fail_job("The last checkpoint was not written: {}", result.checkpoint_failure);
  }
  if (metrics && !metrics->failure().empty()) fail_job("{}", metrics->failure());
  if (!result.interrupted) return kExitSuccess;
  print_interruption(job, result);
  return kExitInterrupted;
}

}  // namespace

void add_train_command(CLI::App& program, Action& chosen, MpiSession* session,
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

}  // namespace millrace
