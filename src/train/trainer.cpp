#include "train/trainer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/lost_pages.h"
#include "base/shortage.h"
#include "compile/arithmetic.h"
#include "train/checkpoint_lock.h"
#include "train/engine.h"
#include "train/evaluation.h"
#include "train/faces/verifier.h"
#include "train/job_agreement.h"
#include "train/loop/best_model.h"
#include "train/loop/checkpoints.h"
#include "train/loop/divergence.h"
#include "train/loop/job_trace.h"
#include "train/loop/loss_scaler.h"
#include "train/loop/run_part.h"
#include "train/loop/starting_point.h"
#include "train/loop/step_clock.h"
#include "train/loop/weight_average.h"
#include "train/model_card.h"
#include "train/network.h"
#include "train/workload.h"

namespace millrace::train {
namespace {

// What a step tells besides the loss; a network need not tell it.
std::vector<Measured> figures_of(const StepOutcome& outcome, double samples) {
  std::vector<Measured> figures;
  for (const MetricDefinition& metric : metrics()) {
    const double count = metric.is_share ? outcome.result(metric.name) : NAN;
    if (std::isfinite(count)) figures.push_back({std::string(metric.name), count / samples});
  }
  return figures;
}

class Trainer {
 public:
  Trainer(const TrainJob& job, const graph::Graph& network, const DataSource& data,
          TrainingObserver& observer, int64_t until_epoch = 0)
      : job_(job),
        until_epoch_(until_epoch),
        network_(network),
        data_(data),
        observer_(observer),
        engine_(job, network, observer),
        scaler_(job.loss_scale),
        best_(job.metric, job.patience) {}

  TrainResult run() {
    try {
      open();
      prepare();
      bool goes_on = owes_evaluation() ? evaluate_now() : true;
      while (goes_on && result_.step < end_ && !best_.exhausted()) {
        steps();
        checkpoints_->report();
        const bool stops = job_.stop != nullptr && job_.stop->load();
        if (engine_.any(stops || !take_next_batch())) break;
        if (result_.step < end_) goes_on = do_periodic_work();
      }
      finish();
      if (data_failure_) std::rethrow_exception(data_failure_);
      engine_.finish();
    } catch (const std::exception& error) {
      engine_.fail(failure_text(error));
      throw;
    }
    return std::move(result_);
  }

 private:
  void open();
  void prepare();
  void set_activity(const std::string& what);
  int64_t steps_at_once() const;
  std::optional<FeedBatch> fetch();
  bool take_next_batch();
  void steps();
  void finish_step(int64_t step, const StepOutcome& outcome);
  bool owes_evaluation() const;
  bool do_periodic_work();
  bool evaluate_now();
  void save_checkpoint();
  void finish();

  bool saves() const { return !job_.checkpoint.empty(); }
  bool evaluates() const { return start_evaluation_ || verifier_; }
  std::optional<EvaluationReport> measure();

  TrainJob job_;
  const int64_t until_epoch_;  // 0: the end of the job
  const graph::Graph& network_;
  const DataSource& data_;
  TrainingObserver& observer_;
  std::optional<CheckpointLock> lock_;  // in the first process
  std::unique_ptr<JobTrace> trace_;
  Engine engine_;
  StartingPoint start_;
  std::unique_ptr<Feed> feed_;
  std::function<std::unique_ptr<Feed>()> start_evaluation_;
  std::optional<Verifier> verifier_;
  std::optional<JobState> state_;
  std::optional<WeightAverage> average_;
  std::optional<Checkpoints> checkpoints_;
  LossScaler scaler_;
  BestModel best_;
  CollapseWatch collapse_;
  StepClock clock_;
  TrainResult result_;
  int64_t end_ = 0;  // the step behind the last of this run
  int64_t evaluated_step_ = -1;
  std::optional<FeedBatch> next_batch_;
  bool taken_ahead_ = false;  // next_batch_ has not been used yet
  FeedPosition position_;     // behind the batches that were used
  std::exception_ptr data_failure_;
  bool inputs_written_ = false;
};

// Data and settings first: what is wrong with them shows before anything is compiled.
void Trainer::open() {
  if (saves() && engine_.rank() == 0) lock_.emplace(job_.checkpoint);
  set_activity("opening the data");
  start_ = find_start(job_, engine_, observer_);
  std::vector<RowRange> rows = engine_.rows();
  if (rows == std::vector<RowRange>{{0, job_.options.batch}}) rows.clear();
  const Manifest& manifest = start_.manifest;
  engine_.adopt_convolutions(manifest.convolutions);
  feed_ = data_.training({.epoch = manifest.epoch, .index = manifest.position}, rows);
  position_ = feed_->position();
  if (data_.evaluation) start_evaluation_ = data_.evaluation(rows);
  if (!job_.verification.empty()) verifier_.emplace(job_);
  if (engine_.rank_group() != nullptr) {
    require_agreement(*engine_.rank_group(), describe_agreement(job_, network_, feed_->samples()));
  }
  if (job_.epochs > 0 && feed_->batches_per_epoch() < 1) {
    fail_input("‹epochs› means nothing with data that has none; use ‹steps›.");
  }
  result_.step = result_.first_step = manifest.step;
  result_.total_steps = job_.steps > 0 ? job_.steps : job_.epochs * feed_->batches_per_epoch();
  result_.steps_per_epoch = feed_->batches_per_epoch();
  end_ = result_.total_steps;
  if (until_epoch_ > 0) end_ = std::min(end_, until_epoch_ * feed_->batches_per_epoch());
  job_.learning_rate = in_steps(job_.learning_rate, feed_->batches_per_epoch());
  job_.learning_rate.total_steps = result_.total_steps;
  tell_changes(start_, job_, observer_);
  tell_passed_over(*feed_, observer_);
  if (job_.average_decay > 0 && engine_.overlaps_steps()) {
    fail_input(
        "‹ema› averages the weights of every step, but ‹schedule› {} lets steps run into each "
        "other; choose gpipe or 1f1b-flush.",
        job_.plan.schedule_name());
  }
  if (job_.classes_assumed) {
    observer_.on_message(Severity::note,
                         fmt::format("‹classes› is {}, as the data does not tell how many it has.",
                                     job_.options.classes));
  }
}

void Trainer::set_activity(const std::string& what) {
  engine_.set_activity(what);
  observer_.on_activity(what);
}

void Trainer::prepare() {
  set_activity(fmt::format("compiling {}", job_.model));
  engine_.compile(job_, evaluates() ? Purpose::training_and_evaluation : Purpose::training,
                  observer_);
  if (!job_.trace.empty()) trace_ = std::make_unique<JobTrace>(engine_);
  set_activity("filling the weights");
  engine_.start(job_.seed);
  state_.emplace(engine_);
  if (job_.average_decay > 0) average_.emplace(*state_, job_.average_decay);
  const runtime::Watch everything =
      job_.loss_scale.in_use() ? runtime::Watch::weights : runtime::Watch::finite;
  engine_.watch(job_.check_finite ? everything : runtime::Watch::loss);
  const bool resumes = !start_.checkpoint.empty();
  if (resumes) {
    set_activity("reading the checkpoint");
    scaler_.resume(start_, engine_);
    best_.resume(start_.manifest.best);
    restore(start_, job_, *state_, engine_, observer_);
    if (average_) average_->resume(start_.checkpoint);
  } else if (const auto weights = starting_weights(job_); !weights.empty()) {
    const WeightMatch match = load_weights(*state_, weights, &job_.new_layers, job_.class_names);
    if (job_.new_layers.any()) observer_.on_message(Severity::note, describe(match));
    if (!match.other_classes.empty() && match.anew.empty()) {
      observer_.on_message(Severity::warning,
                           fmt::format("'{}' was trained on other classes than those of the data; "
                                       "‹new_layers› auto starts its last layer anew.",
                                       weights.string()));
    }
  }
  expect_no_lost_pages();
  checkpoints_.emplace(job_, engine_, *state_, observer_, resumes ? result_.step : -1,
                       lock_ ? &*lock_ : nullptr);
  observer_.on_start({.model = job_.model,
                      .batch = job_.options.batch,
                      .first_step = result_.first_step,
                      .total_steps = result_.total_steps,
                      .steps_per_epoch = feed_->batches_per_epoch(),
                      .devices = static_cast<int>(job_.plan.devices().size()),
                      .threads = engine_.device().threads(),
                      .stage_bytes = bytes_of_stages(describe_devices(engine_)),
                      .arithmetic = compile::describe(job_.precision)});
}

// Steps that may run into each other: up to the next moment at which the whole job must stand
// still, and not so many that an interruption would wait long.
int64_t Trainer::steps_at_once() const {
  if (!engine_.overlaps_steps()) return 1;
  const int64_t most = scaler_.most_steps(32);
  const int64_t per_epoch = feed_->batches_per_epoch();
  int64_t count = 1;
  while (count < most && result_.step + count < end_) {
    const int64_t step = result_.step + count;
    const bool epoch_ends = per_epoch > 0 && step % per_epoch == 0;
    if (epoch_ends || (saves() && job_.checkpoint_every.due(step, per_epoch)) ||
        (evaluates() && job_.evaluation_every.due(step, per_epoch))) {
      break;
    }
    ++count;
  }
  return count;
}

std::optional<FeedBatch> Trainer::fetch() {
  std::optional<FeedBatch> batch = feed_->next();
  if (!batch) {
    fail_job("The training data ended after step {} of {}.", result_.step, result_.total_steps);
  }
  return batch;
}

// The data of the next step, before it begins: if that cannot be read, all ranks still stand at the
// end of a step and can save it. Stages that run into each other take theirs as they go. False if
// the data has failed.
bool Trainer::take_next_batch() {
  const bool done = result_.step >= end_;
  if (done || engine_.overlaps_steps() || feed_->constant()) return true;
  try {
    next_batch_ = clock_.wait_ahead([this] { return fetch(); });
    taken_ahead_ = true;
  } catch (const std::exception&) {
    data_failure_ = std::current_exception();
  }
  return !data_failure_;
}

void Trainer::steps() {
  clock_.start();
  Engine::Steps work;
  work.seed = job_.seed;
  work.first = result_.step;
  work.count = steps_at_once();
  work.learning_rate = [this](int64_t step) {
    return static_cast<float>(learning_rate_at(job_.learning_rate, step));
  };
  work.loss_scale = [this] { return static_cast<float>(scaler_.use()); };
  work.next = [this]() -> const FeedBatch* {
    if (!std::exchange(taken_ahead_, false)) {
      next_batch_ = clock_.wait([this] { return fetch(); });
    }
    position_ = feed_->position();
    return inputs_written_ ? nullptr : &*next_batch_;
  };
  work.finished = [this](int64_t step, const StepOutcome& outcome) { finish_step(step, outcome); };
  engine_.set_activity(fmt::format("step {}", result_.step + 1));
  try {
    engine_.train(work);
  } catch (const kernels::Suspicious& found) {
    const int64_t step = found.step().value_or(result_.step);
    fail_not_finite(job_, engine_, {job_.seed, step, work.learning_rate(step)}, found.what());
  }
  if (average_) average_->update();
  if (feed_->constant() && !inputs_written_ && job_.plan.runs_whole()) {
    inputs_written_ = true;
    feed_->release();
  }
}

void Trainer::finish_step(int64_t step, const StepOutcome& outcome) {
  const double rate = learning_rate_at(job_.learning_rate, step);
  const double scale = scaler_.used();
  kernels::StepState state = {job_.seed, step, static_cast<float>(rate)};
  state.loss_scale = static_cast<float>(scale);
  if (!feed_->constant() && !outcome.skipped) collapse_.look(outcome.loss(), state, engine_);
  scaler_.finish_step(state, outcome, engine_);
  const double writing = checkpoints_->seconds_writing_since(clock_.began());
  const StepClock::Lap lap = clock_.finish(outcome.seconds);
  result_.step = step + 1;
  result_.skipped_steps += outcome.skipped ? 1 : 0;
  result_.losses.push_back(outcome.loss());
  const auto samples = static_cast<double>(job_.options.batch);
  const int64_t per_epoch = feed_->batches_per_epoch();
  observer_.on_step(
      {.step = result_.step,
       .total_steps = result_.total_steps,
       .epoch = per_epoch > 0 ? step / per_epoch : 0,
       .samples = job_.options.batch,
       .loss = outcome.loss(),
       .learning_rate = rate,
       .figures = figures_of(outcome, samples),
       .seconds = lap.seconds,
       .wait_seconds = lap.waited,
       .checkpoint_seconds = writing,
       .samples_per_second = samples / clock_.recent(),
       .seconds_left = clock_.recent() * static_cast<double>(result_.total_steps - result_.step),
       .loss_scale = scale,
       .skipped = outcome.skipped,
       .overflow = outcome.overflow});
}

// Whether an earlier run was interrupted in an evaluation that was due.
bool Trainer::owes_evaluation() const {
  return !start_.checkpoint.empty() && evaluates() && !start_.manifest.measured &&
         result_.step < result_.total_steps &&
         job_.evaluation_every.due(result_.step, feed_->batches_per_epoch());
}

// False if it was interrupted, in every process.
bool Trainer::do_periodic_work() {
  const int64_t per_epoch = feed_->batches_per_epoch();
  if (evaluates() && job_.evaluation_every.due(result_.step, per_epoch) && !evaluate_now()) {
    return false;
  }
  if (saves() && job_.checkpoint_every.due(result_.step, per_epoch)) save_checkpoint();
  return true;
}

// Nothing if it was interrupted.
std::optional<EvaluationReport> Trainer::measure() {
  EvaluationReport report;
  if (start_evaluation_) {
    const auto feed = start_evaluation_();
    if (evaluated_step_ < 0) tell_passed_over(*feed, observer_);
    std::optional<WorstSamples> worst;
    if (job_.worst_samples > 0) worst.emplace(job_);
    const std::optional<EvaluationReport> scored =
        evaluate(engine_, *feed, job_.stop, nullptr, worst ? &*worst : nullptr);
    if (!scored) return {};
    tell_skipped(*feed, observer_);
    report = *scored;
  }
  if (verifier_) {
    const auto start = std::chrono::steady_clock::now();
    const auto figures = verifier_->measure(engine_, job_.stop);
    if (!figures) return {};
    report.pairs = verifier_->pairs();
    report.figures.insert(report.figures.end(), figures->begin(), figures->end());
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    report.seconds += elapsed.count();
  }
  return report;
}

bool Trainer::evaluate_now() {
  engine_.set_activity(fmt::format("the evaluation after step {}", result_.step));
  if (average_) average_->exchange();
  std::optional<EvaluationReport> report = measure();
  if (average_) average_->exchange();
  inputs_written_ = false;
  if (!report) return false;
  report->step = evaluated_step_ = result_.step;
  result_.evaluation = report;
  const bool is_best = best_.look(*report);
  if (is_best) result_.best = report;
  report->best = best_.figure();
  observer_.on_evaluation(*report);
  if (is_best) save_checkpoint();
  return true;
}

void Trainer::save_checkpoint() {
  engine_.set_activity(fmt::format("the checkpoint of step {}", result_.step));
  Progress progress = {result_.step, position_, scaler_.record(engine_)};
  if (evaluated_step_ == result_.step) {
    progress.measured = result_.evaluation->figure(job_.metric);
  }
  progress.best = best_.record();
  if (average_ && result_.step > 0) progress.average = &average_->values();
  checkpoints_->save(progress);
}

void Trainer::finish() {
  result_.ended_early = result_.step < end_ && best_.exhausted();
  if (result_.ended_early) observer_.on_message(Severity::note, best_.describe());
  result_.interrupted = result_.step < end_ && !result_.ended_early;
  const bool is_evaluated = evaluated_step_ == result_.step;
  if (!result_.interrupted && evaluates() && !is_evaluated) {
    result_.interrupted = !evaluate_now();
  }
  save_checkpoint();
  checkpoints_->finish();
  const bool is_last = result_.interrupted || result_.ended_early || end_ == result_.total_steps;
  if (!job_.save_weights.empty() && is_last) {
    if (average_) average_->exchange();
    try {
      save_weights(*state_, job_.save_weights, to_metadata(card_of(job_)));
    } catch (const InputError& error) {
      fail_job("{}", error.marked());
    }
  }
  if (trace_ && is_last) trace_->save(job_.trace, engine_);
  result_.checkpoint_failure = checkpoints_->failure();
  result_.loss_scale = scaler_.state();
  result_.seconds = clock_.seconds();
  result_.wait_seconds = clock_.waited();
  result_.threads = engine_.device().threads();
  result_.devices = describe_devices(engine_);
  result_.schedule = job_.plan.schedule_name();
  result_.reorders = engine_.training()->reorders;
  result_.recomputed = engine_.training()->recomputed;
  result_.in_place = engine_.training()->in_place;
  result_.skipped_records = feed_->skipped();
  result_.skipped = feed_->skipped_records();
}

}  // namespace

TrainResult run_part(const TrainJob& job, TrainingObserver& observer, int64_t until_epoch) {
  const graph::Graph network = network_of(job);
  return Trainer(job, network, data_of(job), observer, until_epoch).run();
}

TrainResult run_training(const TrainJob& job, const Workload& work, TrainingObserver& observer) {
  const TrainJob own = job_for(job, work);
  check(own);
  return Trainer(own, work.network, data_of(own, work), observer).run();
}

}  // namespace millrace::train
