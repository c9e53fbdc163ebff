#include "train/loop/checkpoints.h"

#include "base/error.h"
#include "base/version.h"
#include "train/job_record.h"
#include "train/model_card.h"

namespace millrace::train {

Checkpoints::Checkpoints(const TrainJob& job, Engine& engine, const JobState& state,
                         TrainingObserver& observer, int64_t saved_step, CheckpointLock* lock)
    : job_(job),
      engine_(engine),
      state_(state),
      observer_(observer),
      fingerprint_(engine.fingerprint()),
      saved_step_(saved_step) {
  if (job_.checkpoint.empty()) return;
  if (engine_.rank() == 0) {
    writer_ = std::make_unique<CheckpointWriter>(job_.checkpoint, job_.keep, lock);
    writer_->reserve(state_);
    if (const std::string lack = writer_->lack_of_space(state_, job_.average_decay > 0);
        !lack.empty()) {
      observer_.on_message(Severity::warning, lack + " Make room before the first is due.");
    }
  } else {
    StateSnapshot nothing;
    take_snapshot(state_, nothing);
  }
}

void Checkpoints::save(const Progress& progress) {
  if (job_.checkpoint.empty() || saved_step_ == progress.step) return;
  saved_step_ = progress.step;
  if (!writer_) {
    contribute(state_);
    return;
  }
  Manifest manifest;
  manifest.version = kVersion;
  manifest.model = job_.model;
  manifest.step = progress.step;
  manifest.epoch = progress.position.epoch;
  manifest.position = progress.position.index;
  manifest.seed = job_.seed;
  manifest.learning_rate = to_json(job_.learning_rate);
  manifest.job = describe_job(job_);
  manifest.job["kernels"] = fingerprint_;
  manifest.convolutions = engine_.convolutions();
  manifest.loss_scale = progress.loss_scale;
  manifest.measured = progress.measured;
  manifest.best = progress.best;
  manifest.preprocessing = data::to_json(*card_of(job_).recipe);
  writer_->save(state_, std::move(manifest), progress.average);
}

void Checkpoints::report() {
  if (!writer_) return;
  for (const CheckpointWriter::Outcome& outcome : writer_->take_outcomes()) {
    failure_ = outcome.failure;
    if (outcome.was_gone) {
      observer_.on_message(Severity::warning,
                           fmt::format("The directory '{}' was not there any more, or its lock; it "
                                       "was made anew.",
                                       job_.checkpoint.string()));
    }
    if (outcome.failure.empty()) {
      observer_.on_checkpoint(outcome.report);
    } else {
      observer_.on_message(Severity::warning,
                           fmt::format("Checkpoint of step {} was not written; training goes on "
                                       "and earlier ones are intact: {}",
                                       outcome.report.step, outcome.failure));
    }
    if (!outcome.not_flushed.empty()) {
      observer_.on_message(
          Severity::warning,
          fmt::format("Checkpoint of step {} is there, but may be lost if the power fails: {}",
                      outcome.report.step, outcome.not_flushed));
    }
    if (!outcome.not_pruned.empty()) {
      observer_.on_message(Severity::warning,
                           fmt::format("Checkpoint of step {} was written, but an older one that "
                                       "is not kept is still there: {}",
                                       outcome.report.step, outcome.not_pruned));
    }
  }
}

void Checkpoints::finish() {
  if (!writer_) return;
  writer_->wait();
  report();
}

double Checkpoints::seconds_writing_since(std::chrono::steady_clock::time_point start) {
  return writer_ ? writer_->seconds_writing_since(start) : 0;
}

}  // namespace millrace::train
