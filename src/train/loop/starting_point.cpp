#include "train/loop/starting_point.h"

#include "base/error.h"
#include "comm/texts.h"
#include "train/job_record.h"

namespace millrace::train {
namespace {

StartingPoint look_for_start(const TrainJob& job, TrainingObserver& observer) {
  StartingPoint start;
  if (job.checkpoint.empty()) return start;
  if (!job.resume) {
    const std::vector<CheckpointPlace> places = list_checkpoints(job.checkpoint);
    if (places.empty()) return start;
    fail_input(
        "‹checkpoint› names '{}', which already holds checkpoints up to step {}; add ‹resume› to "
        "continue or give another directory.",
        job.checkpoint.string(), places.back().step);
  }
  const auto found = find_newest_valid(job.checkpoint, [&](std::string_view sentence) {
    observer.on_message(Severity::warning, sentence);
  });
  if (!found) {
    observer.on_message(
        Severity::note,
        fmt::format("No checkpoint in '{}' yet: starting at step 0.", job.checkpoint.string()));
    return start;
  }
  start.checkpoint = *found;
  start.manifest = read_manifest(*found);
  require_same_job(start.manifest.job, describe_job(job), start.checkpoint);
  return start;
}

}  // namespace

StartingPoint find_start(const TrainJob& job, Engine& engine, TrainingObserver& observer) {
  StartingPoint start;
  if (engine.rank() == 0) start = look_for_start(job, observer);
  if (engine.rank_group() == nullptr) return start;
  comm::Group& ranks = *engine.rank_group();
  start.checkpoint = comm::broadcast_text(ranks, start.checkpoint.string(), 0);
  if (start.checkpoint.empty()) return start;
  const Json agreed = Json::parse(comm::broadcast_text(ranks, to_json(start.manifest).dump(), 0));
  start.manifest = parse_manifest(agreed, start.checkpoint / kManifestFile);
  return start;
}

namespace {

// Whether the layers that the checkpoint was made with frozen are trained from now on, as
// ‹freeze_epochs› said.
bool thaws(const StartingPoint& start, const TrainJob& job) {
  const Json frozen = start.manifest.job.value("freeze", Json::array());
  const Json trained = start.manifest.job.value("train-only", Json::array());
  return job.freeze_epochs > 0 && job.trained.freeze.empty() && job.trained.train_only.empty() &&
         !(frozen.empty() && trained.empty());
}

}  // namespace

void tell_changes(const StartingPoint& start, const TrainJob& job, TrainingObserver& observer) {
  if (start.checkpoint.empty()) return;
  std::vector<SettingChange> changes =
      changed_rates(start.manifest.learning_rate, to_json(job.learning_rate));
  for (SettingChange& change : changed_settings(start.manifest.job, describe_job(job))) {
    changes.push_back(std::move(change));
  }
  const bool is_thawing = thaws(start, job);
  for (const SettingChange& change : changes) {
    if (is_thawing && (change.name == "‹freeze›" || change.name == "‹train_only›")) continue;
    observer.on_message(Severity::warning,
                        fmt::format("{} is {} from now on; up to step {} it was {}.", change.name,
                                    change.is.dump(), start.manifest.step, change.was.dump()));
  }
  if (is_thawing) {
    observer.on_message(Severity::note, "From now on everything is trained.");
  } else if (!job.load_weights.empty()) {
    observer.on_message(Severity::note,
                        "‹load_weights› is passed over: the weights are those of the checkpoint.");
  }
}

void restore(const StartingPoint& start, const TrainJob& job, JobState& state, Engine& engine,
             TrainingObserver& observer) {
  load_checkpoint(state, start.checkpoint, start.manifest);
  const std::string fingerprint = engine.fingerprint();
  if (start.manifest.job.value("kernels", fingerprint) != fingerprint && !thaws(start, job)) {
    observer.on_message(Severity::warning,
                        "Threads or kernels are not those of the checkpoint: the run goes on, "
                        "but not bit for bit as it would have.");
  }
  observer.on_message(Severity::note, fmt::format("Resumed from '{}'.", start.checkpoint.string()));
}

}  // namespace millrace::train
