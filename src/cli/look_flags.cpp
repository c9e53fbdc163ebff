#include "cli/look_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/text.h"
#include "cli/card_flags.h"
#include "cli/standard_files.h"
#include "data/formats/files.h"

namespace millrace::cli {

void add_look_flags(CLI::App& command, LookFlags& flags) {
  command
      .add_option("weights", flags.weights,
                  "A run's directory, one of its checkpoints, or a file of weights: safetensors or "
                  "PyTorch's")
      ->group("Weights");
  add_best_flag(command, flags.job);
  add_model_flags(command, flags.job);
  add_device_flags(command, flags.job);
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Images");
  };
  add("--batch", flags.job.batch, "Images computed at once")->capture_default_str();
  flags.job.workers = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  add("--workers", flags.job.workers, "Threads that read and decode [one a core]");
  add("--augment", flags.job.augment,
      "What is done to images: photo, face, small, or auto: what the weights were trained with")
      ->capture_default_str();
  add("--mean", flags.job.mean, "Taken from each colour, of values 0 to 1 [the recipe's]")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--std", flags.job.deviation, "What is left is divided by this [the recipe's]")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--on-bad-record", flags.job.on_bad_record,
      "What to do with a damaged file: fail (name it and stop) or skip (name it and go on)")
      ->capture_default_str();
}

void add_crops_flag(CLI::App& command, int& crops) {
  command
      .add_option("--crops", crops,
                  "Average the logits of so many crops of each photograph: 1 (the centre), 5 (the "
                  "corners too) or 10 (those of the mirrored one too)")
      ->group("Images")
      ->capture_default_str();
}

void require_weights(const LookFlags& flags) {
  if (flags.weights.empty()) {
    fail_input("Name the weights first: a run's directory or a file, then the images.");
  }
  if (data::is_image_name(flags.weights)) {
    fail_input("'{}' is an image; name the weights first, a run's directory or a file.",
               flags.weights);
  }
}

train::TrainJob look_job(const LookFlags& flags, size_t images) {
  constexpr int64_t kFewest = 2;  // networks are checked as if they trained
  JobFlags job = flags.job;
  job.batch = std::min(job.batch, std::max(kFewest, static_cast<int64_t>(images)));
  const bool is_directory = std::filesystem::is_directory(flags.weights);
  return evaluation_job(job, is_directory ? flags.weights : "", is_directory ? "" : flags.weights,
                        "synthetic");
}

void tell_unread(const train::UnreadFiles& unread) {
  if (unread.count == 0) return;
  print_error("millrace: warning: {} file{} could not be read:\n", unread.count,
              unread.count == 1 ? "" : "s");
  for (const std::string& sentence : unread.sentences) print_error("  {}\n", on_one_line(sentence));
}

}  // namespace millrace::cli
