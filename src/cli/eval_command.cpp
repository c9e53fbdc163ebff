#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/card_flags.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/job_flags.h"
#include "cli/look_flags.h"
#include "cli/progress.h"
#include "cli/standard_files.h"
#include "train/confusion.h"
#include "train/evaluation.h"
#include "train/faces/embedding.h"
#include "train/model_card.h"
#include "train/summary.h"
#include "train/trainer.h"

namespace millrace::cli {
namespace {

constexpr const char* kEvalExamples = R"(Examples:
    millrace eval --model fashion_cnn --data idx:DIR --checkpoint runs/fashion
    millrace eval --model resnet50 --data folder:val resnet50.pth
    millrace eval --data folder:val pets.safetensors
    millrace eval --verification pairs.bin runs/faces
    millrace eval --verification lfw.bin --model iresnet50 backbone.pth
    millrace eval --identification recordio:people.rec runs/faces

Every sample counts exactly once, whatever the batch size. The model, its sizes and what is done to
images are those that a checkpoint or exported file was trained with unless flags say otherwise.)";

constexpr int64_t kToldSamples = 48;  // of a summary with pictures

struct EvalFlags {
  JobFlags job;
  std::string load_weights, checkpoint, run, summary;
  std::vector<std::string> verification;
  std::string identification, logits;
  bool json = false, confusion = false;
  int crops = 1;
};

void warn_of_checkpoint(std::string_view sentence) {
  print_error("millrace: warning: {}\n", with_flags(sentence));
}

train::TrainJob to_evaluation_job(EvalFlags flags) {
  if (!flags.run.empty()) {
    if (!flags.checkpoint.empty()) {
      fail_input("Give one directory of checkpoints: '{}' or --checkpoint '{}'.", flags.run,
                 flags.checkpoint);
    }
    const bool is_file = std::filesystem::is_regular_file(flags.run);
    if (is_file && !flags.load_weights.empty()) {
      fail_input("Give one file of weights: '{}' or --load-weights '{}'.", flags.run,
                 flags.load_weights);
    }
    (is_file ? flags.load_weights : flags.checkpoint) = flags.run;
  }
  if (flags.load_weights.empty() && flags.checkpoint.empty()) {
    flags.load_weights = models::onnx_file(flags.job.model).string();
  }
  if (flags.load_weights.empty() && flags.checkpoint.empty()) {
    fail_input("Say what to evaluate: a run's directory or a file of weights.");
  }
  if (!flags.load_weights.empty() && !flags.checkpoint.empty()) {
    fail_input("Both '{}' and '{}' have weights; give one of them.", flags.checkpoint,
               flags.load_weights);
  }
  if (!flags.checkpoint.empty() && !flags.job.best) {
    flags.checkpoint = train::newest_checkpoint(flags.checkpoint, warn_of_checkpoint).string();
  }
  const std::string data = std::exchange(flags.job.data, "synthetic");
  return evaluation_job(flags.job, flags.checkpoint, flags.load_weights, data);
}

Json run_classes(const train::TrainJob& job, const EvalFlags& flags, ProgressPrinter& messages,
                 std::string& text) {
  train::KeptLogits kept;
  const bool keeps = !flags.logits.empty() || flags.confusion;
  train::TrainJob told = job;
  if (flags.confusion && !flags.summary.empty()) told.worst_samples = kToldSamples;
  const train::EvaluationResult result =
      train::run_evaluation(told, messages, keeps ? &kept : nullptr, flags.crops);
  if (!flags.logits.empty()) train::save_logits(flags.logits, kept, job.model);
  Json json = train::to_json(result.report);
  json.erase("step");
  json["data"] = printable(job.evaluation_data);
  json["samples_per_second"] = static_cast<double>(result.report.samples) / result.report.seconds;
  json["devices"] = Json::array({train::to_json(train::DeviceReport{
      .id = "0:0", .arena_bytes = result.arena_bytes, .breakdown = result.breakdown})});
  text = fmt::format("{} samples: {} ({:.1f} samples/s)\n", result.report.samples,
                     result.report.text(), json["samples_per_second"].get<double>());
  if (flags.confusion) {
    const train::Confusion confusion(kept, job.options.classes);
    json["confusion"] = confusion.to_json(job.class_names);
    if (told.worst_samples > 0) json["wrong"] = train::wrong_to_json(result.report.worst);
    text += confusion.to_text(job.class_names);
  }
  if (result.cosine_scale > 0) {
    json["classifier"] = {{"kind", "cosines"}, {"scale", result.cosine_scale}};
    text += fmt::format(
        "Classes are told apart by cosines to the trained centres, times {:g}, without a margin.\n",
        result.cosine_scale);
  }
  return json;
}

Json describe(const std::string& set, const train::VerificationReport& report, std::string& text) {
  text += fmt::format(
      "{}{} pairs: accuracy {:.2f} % (± {:.2f} over {} folds) at a squared distance of {:.2f}\n",
      set.empty() ? "" : set + ": ", report.pairs, report.accuracy * 100, report.deviation * 100,
      train::kFolds, report.threshold);
  text += fmt::format("AUC: {:.2f} %\n", report.auc * 100);
  Json rates = Json::object();
  for (const train::AcceptRate& rate : report.rates) {
    const std::string name = fmt::format("1e-{:.0f}", -std::log10(rate.far));
    rates[name] = rate.tar;
    text += fmt::format("TAR at FAR {}: {:.2f} %{}\n", name, rate.tar * 100,
                        rate.resolved ? "" : " (too few pairs; that of no false accept)");
  }
  return {{"pairs", report.pairs},
          {"accuracy", report.accuracy},
          {"accuracy_deviation", report.deviation},
          {"threshold", report.threshold},
          {"auc", report.auc},
          {"tar_at_far", rates},
          {"smallest_far", 1.0 / static_cast<double>(report.different)}};
}

Json run_faces(const train::TrainJob& job, const EvalFlags& flags, ProgressPrinter& messages,
               std::string& text) {
  const train::FaceEvaluationResult result =
      train::evaluate_faces(job,
                            {.pairs = {flags.verification.begin(), flags.verification.end()},
                             .identification = flags.identification},
                            messages);
  Json json = Json::object();
  const auto& sets = result.verification;
  if (sets.size() == 1) {
    json = describe("", sets[0].second, text);
    json["verification"] = printable(flags.verification[0]);
  }
  for (size_t i = 0; sets.size() > 1 && i < sets.size(); ++i) {
    json["sets"][sets[i].first] = describe(sets[i].first, sets[i].second, text);
  }
  if (const auto& report = result.identification) {
    json["identification"] = printable(flags.identification);
    json["gallery"] = report->gallery;
    json["probes"] = report->probes;
    json["rank1"] = report->rank1;
    text += fmt::format("{} probes against {} identities: rank-1 {:.2f} %\n", report->probes,
                        report->gallery, report->rank1 * 100);
    for (const train::AcceptRate& rate : report->rates) {
      const std::string name = fmt::format("1e-{:.0f}", -std::log10(rate.far));
      json["tpir_at_fpir"][name] = rate.tar;
      text += fmt::format("TPIR at FPIR {}: {:.2f} %{}\n", name, rate.tar * 100,
                          rate.resolved ? "" : " (too few probes; that of no false one)");
    }
  }
  json["images"] = result.images;
  json["samples_per_second"] = static_cast<double>(result.images) / result.seconds;
  json["devices"] = Json::array({train::to_json(train::DeviceReport{
      .id = "0:0", .arena_bytes = result.arena_bytes, .breakdown = result.breakdown})});
  return json;
}

int run_eval(EvalFlags flags) {
  train::TrainJob job = to_evaluation_job(flags);
  if (flags.verification.empty() && flags.identification.empty() && flags.job.data.empty()) {
    const train::ModelCard card = train::find_card(job.checkpoint, job.load_weights);
    if (card.evaluation_data.empty()) {
      flags.verification = card.verification;
      if (flags.verification.empty()) {
        fail_input("--data is missing: nothing says what these weights were measured on.");
      }
    }
  }
  const bool faces = !flags.verification.empty() || !flags.identification.empty();
  if (faces && (!flags.logits.empty() || flags.confusion)) {
    fail_input("{} needs --data: verification and identification compare embeddings.",
               flags.confusion ? "--confusion" : "--logits");
  }
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  if (!flags.logits.empty()) require_writable(flags.logits, "--logits");
  ProgressPrinter messages(false);
  std::string text;
  Json json =
      faces ? run_faces(job, flags, messages, text) : run_classes(job, flags, messages, text);
  json["model"] = job.model;
  json["process_peak_rss_bytes"] = train::peak_resident_bytes();
  if (!flags.summary.empty()) write_text(flags.summary, json.dump(2) + "\n");
  fmt::print("{}", flags.json ? json.dump(2) + "\n" : text);
  return kExitSuccess;
}

}  // namespace

void add_eval_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<EvalFlags>();
  flags->job.data.clear();  // what the run was measured on
  CLI::App* command =
      program.add_subcommand("eval", "Measure the accuracy of a checkpoint or weights");
  add_model_flags(*command, flags->job);
  add_data_flags(*command, flags->job);
  add_device_flags(*command, flags->job);
  add_backend_flags(*command, flags->job);
  command->add_option("--batch", flags->job.batch, "Samples computed at once")
      ->group("Device and memory")
      ->capture_default_str();
  const auto add = [&](const char* group, const char* name, auto& value, const char* help) {
    command->add_option(name, value, help)->group(group);
  };
  add("Weights", "--checkpoint", flags->checkpoint,
      "The newest intact checkpoint in this directory");
  add("Weights", "run", flags->run,
      "A run's directory, one of its checkpoints, or a file of weights, without a flag");
  add("Weights", "--load-weights,--weights", flags->load_weights,
      "Or weights with torchvision's or InsightFace's names: safetensors, an index of several, or "
      "a "
      "PyTorch file");
  add_best_flag(*command, flags->job);
  add_crops_flag(*command, flags->crops);
  command
      ->add_flag("--confusion", flags->confusion,
                 "Tell for each class how many were right, and which were taken for which")
      ->group("Output");
  command
      ->add_option(
          "--verification", flags->verification,
          "Instead of --data: pairs of faces in InsightFace's .bin format, several files with "
          "commas; gives the accuracy over ten folds, the area under the curve and the true "
          "accepts at false-accept rates of 1e-2 to 1e-5")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Faces");
  add("Faces", "--identification", flags->identification,
      "A set written as --data, labels are people: the first image of each is looked up by the "
      "others; gives the share found at rank 1, and above a threshold (TPIR at FPIR)");
  add("Output", "--summary", flags->summary,
      "Write the results there as one JSON object; with --confusion, also the pictures that it was "
      "the "
      "furthest off with, for `millrace report`");
  add("Output", "--logits", flags->logits,
      "Write the logits of every sample, in the order of the data, and the labels there as "
      "safetensors");
  command->add_flag("--json", flags->json, "Print JSON")->group("Output");
  command->footer(kEvalExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_eval(*flags); }; });
}

}  // namespace millrace::cli
