#include "cli/card_flags.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "train/job_classes.h"

namespace millrace::cli {

bool follow_card(const train::ModelCard& card, JobFlags& flags) {
  if (card.model.empty() || (!flags.model.empty() && flags.model != card.model)) return false;
  flags.model = card.model;
  const auto take = [](int64_t known, std::optional<int64_t>& value) {
    if (!value && known > 0) value = known;
  };
  take(card.classes, flags.classes);
  take(card.image, flags.image);
  take(card.channels, flags.channels);
  return true;
}

void add_best_flag(CLI::App& command, JobFlags& flags) {
  command
      .add_flag("--best", flags.best,
                "The checkpoint of the run that was measured best, instead of the newest")
      ->group("Weights");
}

void require_safetensors(const std::filesystem::path& path, std::string_view what) {
  // Not PyTorch's: whoever reads weights here goes by what a file holds, and scripts use such
  // names.
  constexpr std::string_view kOthers[] = {".onnx", ".h5"};
  const std::string ending = path.extension().string();
  if (std::ranges::find(kOthers, ending) != std::end(kOthers)) {
    fail_input("{} is '{}', but weights are written as .safetensors{}.", what, path.string(),
               ending == ".onnx" ? "; `millrace export` writes ONNX" : "");
  }
  require_writable(path, what);
}

train::TrainJob evaluation_job(JobFlags flags, const std::string& checkpoint,
                               const std::string& weights, const std::string& data) {
  const train::ModelCard card = train::find_card(checkpoint, weights);
  const bool same_model = follow_card(card, flags);
  flags.data = "synthetic";
  train::TrainJob job = to_job(flags);
  std::string looked_at = data;
  if (data.empty()) {
    looked_at = card.evaluation_data.empty() ? "synthetic" : card.evaluation_data;
    job.data.valid_share = card.valid_share;
    job.seed = card.seed;
  }
  job.load_weights = weights;
  job.checkpoint = checkpoint;
  job.best = flags.best;
  if (flags.best && checkpoint.empty()) fail_input("--best chooses among checkpoints of a run.");
  job.evaluation_data = looked_at;
  if (same_model) job.class_names = card.class_names;
  if (same_model && flags.augment == "auto") job.data.recipe = card.recipe;
  if (job.data.valid_share == 0) train::follow_evaluation_data(job, flags.classes.has_value());
  job.steps = 1;
  train::check(job);
  return job;
}

}  // namespace millrace::cli
