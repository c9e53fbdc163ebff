#include "train/checkpoint.h"
#include "train/loop/run_part.h"

namespace millrace::train {
namespace {

// Whether the run that the job goes on with has left the epochs behind in which layers are frozen:
// its newest checkpoint was not made with them.
bool has_thawed(const TrainJob& job) {
  if (!job.resume) return false;
  const auto found = find_newest_valid(job.checkpoint, [](std::string_view) {});
  if (!found) return false;
  const Json recorded = read_manifest(*found).job;
  const auto is_same = [&](const char* name, const std::vector<std::string>& patterns) {
    return recorded.is_object() && recorded.value(name, Json()) == Json(patterns);
  };
  return !is_same("freeze", job.trained.freeze) || !is_same("train-only", job.trained.train_only);
}

// With some layers frozen, then from the checkpoint of that with all of them trained.
TrainResult run_in_two_parts(const TrainJob& job, TrainingObserver& observer) {
  TrainResult first;
  TrainJob rest = job;
  if (!has_thawed(job)) {
    first = run_part(job, observer, job.freeze_epochs);
    if (first.interrupted || first.ended_early || first.step == first.total_steps) return first;
    rest.resume = true;
  }
  rest.trained.freeze.clear();
  rest.trained.train_only.clear();
  TrainResult result = run_part(rest, observer, 0);
  result.losses.insert(result.losses.begin(), first.losses.begin(), first.losses.end());
  result.seconds.insert(result.seconds.begin(), first.seconds.begin(), first.seconds.end());
  if (!first.losses.empty()) result.first_step = first.first_step;
  result.wait_seconds += first.wait_seconds;
  result.skipped_steps += first.skipped_steps;
  if (!result.best) result.best = first.best;
  return result;
}

}  // namespace

TrainResult run_training(const TrainJob& job, TrainingObserver& observer) {
  check(job);
  return job.freeze_epochs > 0 ? run_in_two_parts(job, observer) : run_part(job, observer, 0);
}

}  // namespace millrace::train
