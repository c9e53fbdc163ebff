#include <fmt/format.h>

#include <memory>

#include "api/model.h"
#include "base/error.h"
#include "base/file.h"
#include "cli/activity_line.h"
#include "cli/card_flags.h"
#include "cli/command.h"
#include "cli/flag_numbers.h"
#include "cli/progress.h"
#include "models/onnx/exporter.h"
#include "train/restore_norms.h"

namespace millrace::cli {
namespace {

constexpr const char* kExportExamples = R"(Examples:
    millrace export runs/pets pets.onnx --best
    millrace export runs/faces/step-00012000 faces.onnx --fold
    millrace export resnet50.pth resnet50.onnx --model resnet50
    millrace export folded.onnx backbone.onnx --restore-norms 512 --data folder:pets

The file has an open batch, and the names of the classes and what is done to images in its metadata.
`millrace predict pets.onnx cat.jpg` and `--model onnx:pets.onnx` read it again.)";

struct ExportFlags {
  JobFlags job;
  api::ExportOptions options;
  std::string source, target, data;
  int64_t restored_by = 0;  // pictures
};

// An ONNX file with the normalisations that its exporter folded away.
int run_restore(const ExportFlags& flags, train::TrainJob job) {
  if (std::filesystem::path(flags.source).extension() != ".onnx") {
    fail_input("--restore-norms is for ONNX files; '{}' has the norms that it was trained with.",
               flags.source);
  }
  if (flags.options.fold) fail_input("--restore-norms and --fold undo each other; choose one.");
  if (flags.data.empty()) fail_input("--restore-norms needs --data to measure statistics on.");
  job.data.source = flags.data;
  ActivityLine messages;
  const int64_t count =
      train::restore_norms(job, flags.source, flags.target, flags.restored_by, messages);
  messages.clear();
  fmt::print("{}: {} batch normalisations restored, measured on {} pictures of '{}'\n",
             flags.target, count, flags.restored_by, flags.data);
  return kExitSuccess;
}

int run_export_onnx(const ExportFlags& flags) {
  if (flags.source.empty() || flags.target.empty()) {
    fail_input("Name a run's directory or a file of weights, and then the ONNX file to write.");
  }
  if (std::filesystem::path(flags.target).extension() != ".onnx") {
    fail_input("'{}' does not end in .onnx; `millrace ckpt export` writes safetensors.",
               flags.target);
  }
  require_writable(flags.target, "The output");
  const bool is_directory = std::filesystem::is_directory(flags.source);
  JobFlags asked = flags.job;
  asked.batch = 2;  // any
  const train::TrainJob job = evaluation_job(asked, is_directory ? flags.source : "",
                                             is_directory ? "" : flags.source, "synthetic");
  if (flags.restored_by > 0) return run_restore(flags, job);
  if (!flags.data.empty()) fail_input("--data has no effect without --restore-norms.");
  ProgressPrinter messages(false);
  const api::Exported report = api::Model(job).export_onnx(flags.target, flags.options, &messages);
  fmt::print("{}: {} nodes, {} parameters, opset {}; images ({} x {} x {}) to {}\n", flags.target,
             report.nodes, report.parameters, flags.options.opset, job.options.channels,
             job.options.image, job.options.image, report.result);
  return kExitSuccess;
}

}  // namespace

void add_export_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = program.add_subcommand("export", "Write a trained network as an ONNX file");
  command
      ->add_option("weights", flags->source,
                   "A run's directory, one of its checkpoints, or a file of weights")
      ->group("Weights");
  command->add_option("file", flags->target, "The ONNX file to write")->group("Output");
  add_best_flag(*command, flags->job);
  add_model_flags(*command, flags->job);
  command
      ->add_flag("--fold", flags->options.fold,
                 "Put batch normalisations into the layers before them: fewer nodes, same results")
      ->group("Output");
  command
      ->add_option("--opset", flags->options.opset,
                   fmt::format("The version of ONNX's operators, {} to {}",
                               models::onnx::kFirstOpset, models::onnx::kLastOpset))
      ->group("Output")
      ->capture_default_str();
  command
      ->add_option("--restore-norms", flags->restored_by,
                   "Put a batch normalisation behind each convolution of an ONNX file whose "
                   "exporter folded it away, with statistics of so many pictures of --data; the "
                   "network gives what it gave, and is trained further like the original")
      ->check(between(2, 1 << 30))
      ->group("Output");
  command->add_option("--data", flags->data, "Pictures for --restore-norms, as `train` takes them")
      ->group("Output");
  command->footer(kExportExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_export_onnx(*flags); }; });
}

}  // namespace millrace::cli
