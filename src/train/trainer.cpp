#include "train/trainer.h"

#include <chrono>
#include <memory>

#include "base/error.h"
#include "train/checkpoint_writer.h"
#include "train/engine.h"
#include "train/evaluation.h"
#include "train/feed/feeds.h"
#include "train/job_record.h"
#include "train/version.h"
#include "train/workload.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What an earlier run left to go on from.
struct StartingPoint {
  std::filesystem::path checkpoint;  // empty: the beginning
  Manifest manifest;
};

StartingPoint find_start(const TrainJob& job, TrainingObserver& observer) {
  StartingPoint start;
  if (job.checkpoint.empty()) return start;
  if (!job.resume) {
    const std::vector<CheckpointPlace> places = list_checkpoints(job.checkpoint);
    if (places.empty()) return start;
    fail_input(
        "--checkpoint names '{}', which already holds checkpoints up to step {}; add --resume to "
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
  for (const std::string& name :
       compare_jobs(start.manifest.job, describe_job(job), start.checkpoint)) {
    observer.on_message(Severity::warning,
                        fmt::format("--{} is not what checkpoint '{}' was made with; the new "
                                    "value is used.",
                                    name, start.checkpoint.string()));
  }
  return start;
}

class Trainer {
 public:
  Trainer(const TrainJob& job, const Workload& work, TrainingObserver& observer)
      : job_(job),
        observer_(observer),
        start_(find_start(job, observer)),
        feed_(work.training({.epoch = start_.manifest.epoch, .index = start_.manifest.position})),
        start_evaluation_(work.evaluation),
        engine_(job, work.network,
                start_evaluation_ ? Purpose::training_and_evaluation : Purpose::training,
                observer) {
    if (job.epochs > 0 && feed_->batches_per_epoch() < 1) {
      fail_input("--epochs means nothing with data that has none; use --steps.");
    }
    result_.step = result_.first_step = start_.manifest.step;
    result_.total_steps = job.steps > 0 ? job.steps : job.epochs * feed_->batches_per_epoch();
    job_.learning_rate.total_steps = result_.total_steps;
    fingerprint_ = kernel_fingerprint(*engine_.training(), engine_.device().threads());
  }

  TrainResult run() {
    prepare();
    while (result_.step < result_.total_steps) {
      step();
      report_checkpoints();
      if (job_.stop != nullptr && job_.stop->load()) break;
      if (result_.step < result_.total_steps) do_periodic_work();
    }
    finish();
    return std::move(result_);
  }

 private:
  void prepare();
  void step();
  void do_periodic_work();
  void evaluate_now();
  void save_checkpoint();
  void report_checkpoints();
  void finish();
  [[noreturn]] void fail_step(const StepState& state, const std::string& found);
  void look_for_collapse(double loss, const StepState& state);
  double recent_step_seconds() const;

  TrainJob job_;
  TrainingObserver& observer_;
  StartingPoint start_;
  std::unique_ptr<Feed> feed_;
  std::function<std::unique_ptr<Feed>()> start_evaluation_;
  Engine engine_;
  std::unique_ptr<CheckpointWriter> writer_;
  std::string fingerprint_;
  TrainResult result_;
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;
  bool inputs_written_ = false;
  int64_t same_losses_ = 0;
};

void Trainer::prepare() {
  engine_.start(job_.seed);
  engine_.watch(job_.check_finite ? Watch::finite : Watch::loss);
  if (!start_.checkpoint.empty()) {
    load_checkpoint(engine_.session(), start_.checkpoint);
    saved_step_ = result_.step;
    const Json& recorded = start_.manifest.job;
    if (recorded.value("kernels", fingerprint_) != fingerprint_) {
      observer_.on_message(Severity::warning,
                           "Threads or kernels are not those of the checkpoint: the run goes on, "
                           "but not bit for bit as it would have.");
    }
    observer_.on_message(Severity::note,
                         fmt::format("Resumed from '{}'.", start_.checkpoint.string()));
  } else if (!job_.load_weights.empty()) {
    load_weights(engine_.session(), job_.load_weights);
  }
  if (!job_.checkpoint.empty()) {
    writer_ = std::make_unique<CheckpointWriter>(job_.checkpoint, job_.keep);
    writer_->reserve(engine_.session());
  }
  observer_.on_start({.model = job_.model,
                      .batch = job_.options.batch,
                      .first_step = result_.first_step,
                      .total_steps = result_.total_steps,
                      .steps_per_epoch = feed_->batches_per_epoch(),
                      .threads = engine_.device().threads(),
                      .arena_bytes = engine_.session().arena_bytes()});
}

void Trainer::step() {
  const auto start = Clock::now();
  Session& session = engine_.session();
  const Program& program = *engine_.training();
  const std::optional<FeedBatch> next = feed_->next();
  if (!next)
    fail_job("The training data ended after step {} of {}.", result_.step, result_.total_steps);
  const FeedBatch& batch = *next;
  const double waited = seconds_since(start);
  if (!inputs_written_) {
    session.write_input(program, "images", batch.images);
    session.write_input(program, "labels", batch.labels);
    if (feed_->constant()) {
      inputs_written_ = true;
      feed_->release();
    }
  }
  const double rate = learning_rate_at(job_.learning_rate, result_.step);
  const StepState state = {job_.seed, result_.step, static_cast<float>(rate)};
  try {
    session.run(program, state);
  } catch (const Suspicious& found) {
    fail_step(state, found.what());
  }
  const double loss = session.scalar(program, "loss");
  ++result_.step;
  if (!feed_->constant()) look_for_collapse(loss, state);
  const double seconds = seconds_since(start);
  result_.losses.push_back(loss);
  result_.seconds.push_back(seconds);
  result_.wait_seconds += waited;
  const double recent = recent_step_seconds();
  const auto samples = static_cast<double>(job_.options.batch);
  observer_.on_step(
      {.step = result_.step,
       .total_steps = result_.total_steps,
       .epoch = batch.position.epoch,
       .samples = job_.options.batch,
       .loss = loss,
       .learning_rate = rate,
       .top1 = session.scalar(program, "top1") / samples,
       .top5 = session.scalar(program, "top5") / samples,
       .seconds = seconds,
       .wait_seconds = waited,
       .checkpoint_seconds = writer_ ? writer_->seconds_writing_since(start) : 0,
       .samples_per_second = samples / recent,
       .seconds_left = recent * static_cast<double>(result_.total_steps - result_.step)});
}

void Trainer::fail_step(const StepState& state, const std::string& found) {
  const std::string first = job_.check_finite ? found : engine_.explain(state, Watch::finite);
  fail_job(
      "{} is not finite at step {} with learning rate {:g}: {}; lower --lr or use --clip-norm.",
      job_.check_finite ? "A value" : "The loss", state.step + 1, state.learning_rate,
      first.empty() ? found : first);
}

// A network that has died gives every batch the same loss.
void Trainer::look_for_collapse(double loss, const StepState& state) {
  constexpr int64_t kSteps = 100;
  constexpr double kConverged = 1e-6;
  const bool same = !result_.losses.empty() && result_.losses.back() == loss;
  same_losses_ = same && loss > kConverged && state.learning_rate > 0 ? same_losses_ + 1 : 0;
  if (same_losses_ < kSteps) return;
  const std::string first = engine_.explain(state, Watch::alive);
  fail_job(
      "The loss has been exactly {:g} since step {}: the network has collapsed{}{}; lower --lr "
      "or use --clip-norm.",
      loss, result_.step - kSteps, first.empty() ? "" : ", ", first);
}

double Trainer::recent_step_seconds() const {
  constexpr size_t kWindow = 20;
  const size_t first = result_.seconds.size() > 1 ? 1 : 0;  // the first step warms up
  const size_t count = std::min(kWindow, result_.seconds.size() - first);
  double sum = 0;
  for (size_t i = result_.seconds.size() - count; i < result_.seconds.size(); ++i) {
    sum += result_.seconds[i];
  }
  return sum / static_cast<double>(count);
}

void Trainer::do_periodic_work() {
  const int64_t per_epoch = feed_->batches_per_epoch();
  if (start_evaluation_ && job_.evaluation_every.due(result_.step, per_epoch)) evaluate_now();
  if (writer_ && job_.checkpoint_every.due(result_.step, per_epoch)) save_checkpoint();
}

void Trainer::evaluate_now() {
  const auto feed = start_evaluation_();
  std::optional<EvaluationReport> report =
      evaluate(engine_.session(), *engine_.evaluation(), *feed, job_.stop);
  inputs_written_ = false;
  if (!report) return;
  report->step = evaluated_step_ = result_.step;
  result_.evaluation = report;
  const bool is_best = !result_.best || report->top1 > result_.best->top1;
  if (is_best) result_.best = report;
  observer_.on_evaluation(*report);
  if (is_best && writer_) save_checkpoint();
}

void Trainer::save_checkpoint() {
  if (saved_step_ == result_.step) return;
  saved_step_ = result_.step;
  const FeedPosition position = feed_->position();
  Manifest manifest;
  manifest.version = kVersion;
  manifest.model = job_.model;
  manifest.step = result_.step;
  manifest.epoch = position.epoch;
  manifest.position = position.index;
  manifest.seed = job_.seed;
  manifest.learning_rate = to_json(job_.learning_rate);
  manifest.job = describe_job(job_);
  manifest.job["kernels"] = fingerprint_;
  if (evaluated_step_ == result_.step) manifest.accuracy = result_.evaluation->top1;
  writer_->save(engine_.session(), std::move(manifest));
}

void Trainer::report_checkpoints() {
  if (!writer_) return;
  for (const CheckpointWriter::Outcome& outcome : writer_->take_outcomes()) {
    result_.checkpoint_failure = outcome.failure;
    if (outcome.failure.empty()) {
      observer_.on_checkpoint(outcome.report);
    } else {
      observer_.on_message(Severity::warning,
                           fmt::format("Checkpoint of step {} was not written; earlier ones are "
                                       "intact: {}",
                                       outcome.report.step, outcome.failure));
    }
  }
}

void Trainer::finish() {
  result_.interrupted = result_.step < result_.total_steps;
  if (!result_.interrupted && start_evaluation_) evaluate_now();
  if (writer_) {
    save_checkpoint();
    writer_->wait();
    report_checkpoints();
  }
  if (!job_.save_weights.empty()) {
    try {
      save_weights(engine_.session(), job_.save_weights, job_.model);
    } catch (const InputError& error) {
      fail_job("{}", error.what());
    }
  }
  const Program& program = engine_.largest();
  result_.threads = engine_.device().threads();
  result_.arena_bytes = engine_.session().arena_bytes();
  result_.resident_bytes = engine_.session().resident_bytes();
  result_.breakdown = program.breakdown;
  result_.reorders = engine_.training()->reorders;
  result_.recomputed = engine_.training()->recomputed;
  result_.in_place = engine_.training()->in_place;
  result_.skipped_records = feed_->skipped();
}

}  // namespace

TrainResult run_training(const TrainJob& job, TrainingObserver& observer) {
  check(job);
  return Trainer(job, workload_of(job), observer).run();
}

TrainResult run_training(const TrainJob& job, const Workload& work, TrainingObserver& observer) {
  const TrainJob own = job_for(job, work);
  check(own);
  return Trainer(own, work, observer).run();
}

EvaluationResult run_evaluation(const TrainJob& job, TrainingObserver& observer) {
  const std::filesystem::path weights = weights_file(job, observer);
  const auto data = open_evaluation_data(job);
  Engine engine(job, Purpose::evaluation, observer);
  engine.start(job.seed);
  load_weights(engine.session(), weights);
  const auto feed = data->start();
  const auto report = evaluate(engine.session(), *engine.evaluation(), *feed, job.stop);
  if (!report) fail_job("Stopped before the whole data set was evaluated.");
  return {*report, engine.device().threads(), engine.session().arena_bytes(),
          engine.evaluation()->breakdown};
}

}  // namespace millrace
