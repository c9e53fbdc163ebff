#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/job_flags.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
    millrace eval --model fashion_cnn --data idx:DIR --checkpoint runs/fashion
    millrace eval --model resnet50 --data folder:val --load-weights resnet50.safetensors

Every sample counts exactly once, whatever the batch size.)";

struct EvalFlags {
  JobFlags job;
  std::string load_weights, checkpoint, summary;
  bool json = false;
};

int run_eval(const EvalFlags& flags) {
  TrainJob job = to_job(flags.job);
  if (flags.load_weights.empty() == flags.checkpoint.empty()) {
    fail_input("Say what to evaluate: either --checkpoint DIR or --load-weights FILE.");
  }
  job.load_weights = flags.load_weights;
  job.checkpoint = flags.checkpoint;
  job.evaluation_data = flags.job.data;
  job.data.source = "synthetic";
  job.steps = 1;
  check(job);
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  job.stop = &stop_on_signals();

  ProgressPrinter messages(false);
  const EvaluationResult result = run_evaluation(job, messages);
  Json json = to_json(result.report);
  json.erase("step");
  json["model"] = job.model;
  json["data"] = job.evaluation_data;
  json["samples_per_second"] = static_cast<double>(result.report.samples) / result.report.seconds;
  json["devices"] = Json::array({describe_device(result.arena_bytes, result.breakdown)});
  json["process_peak_rss_bytes"] = peak_resident_bytes();
  if (!flags.summary.empty()) write_text(flags.summary, json.dump(2) + "\n");
  if (flags.json) {
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{} samples: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} % ({:.1f} samples/s)\n",
               result.report.samples, result.report.loss, result.report.top1 * 100,
               result.report.top5 * 100, json["samples_per_second"].get<double>());
  }
  return kExitSuccess;
}

}  // namespace

void add_eval_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command =
      program.add_subcommand("eval", "Measure the accuracy of a checkpoint or weights");
  add_model_flags(*command, flags->job);
  add_data_flags(*command, flags->job);
  add_device_flags(*command, flags->job);
  command->add_option("--batch", flags->job.batch, "Samples computed at once")
      ->group("Device and memory")
      ->capture_default_str();
  const auto add = [&](const char* group, const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)->group(group);
  };
  add("Weights", "--checkpoint", flags->checkpoint,
      "The newest intact checkpoint in this directory");
  add("Weights", "--load-weights", flags->load_weights,
      "Or a safetensors file with torchvision's names");
  add("Output", "--summary", flags->summary, "Write the results there as one JSON object");
  command->add_flag("--json", flags->json, "Print JSON")->group("Output");
  command->footer(kExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_eval(*flags); }; });
}

}  // namespace millrace
