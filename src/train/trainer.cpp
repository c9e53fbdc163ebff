#include "train/trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>

#include "base/error.h"
#include "comm/texts.h"
#include "compile/arithmetic.h"
#include "runtime/trace_file.h"
#include "train/checkpoint_writer.h"
#include "train/device_report.h"
#include "train/engine.h"
#include "train/evaluation.h"
#include "train/feed/feeds.h"
#include "train/job_agreement.h"
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

// The first process looks, as only it need see the files.
StartingPoint agree_on_start(const TrainJob& job, Engine& engine, TrainingObserver& observer) {
  StartingPoint start;
  if (engine.rank() == 0) start = find_start(job, observer);
  if (engine.rank_group() == nullptr) return start;
  Json json = {{"checkpoint", start.checkpoint.string()}};
  if (!start.checkpoint.empty()) json["manifest"] = to_json(start.manifest);
  const Json agreed = Json::parse(broadcast_text(*engine.rank_group(), json.dump(), 0));
  start.checkpoint = agreed["checkpoint"].get<std::string>();
  if (!start.checkpoint.empty()) {
    start.manifest = parse_manifest(agreed["manifest"], start.checkpoint / kManifestFile);
  }
  return start;
}

class Trainer {
 public:
  Trainer(const TrainJob& job, const Graph& network, const DataSource& data,
          TrainingObserver& observer)
      : job_(job),
        network_(network),
        data_(data),
        observer_(observer),
        engine_(job, network, observer) {}

  TrainResult run() {
    try {
      open();
      prepare();
      while (result_.step < result_.total_steps) {
        steps();
        report_checkpoints();
        if (engine_.any(job_.stop != nullptr && job_.stop->load())) break;
        if (result_.step < result_.total_steps) do_periodic_work();
      }
      finish();
      engine_.finish();
    } catch (const std::exception& error) {
      engine_.fail(error.what());
      throw;
    }
    return std::move(result_);
  }

 private:
  void open();
  void prepare();
  int64_t steps_at_once() const;
  void steps();
  void finish_step(int64_t step, const StepOutcome& outcome);
  void do_periodic_work();
  void evaluate_now();
  void save_checkpoint();
  void report_checkpoints();
  void finish();
  void save_trace();
  [[noreturn]] void fail_step(const StepState& state, const std::string& found);
  void resume_loss_scale();
  void move_loss_scale(const StepState& state, const StepOutcome& outcome);
  void look_for_collapse(double loss, const StepState& state);
  double recent_step_seconds() const;

  bool writes() const { return engine_.rank() == 0; }
  bool saves() const { return !job_.checkpoint.empty(); }

  TrainJob job_;
  const Graph& network_;
  const DataSource& data_;
  TrainingObserver& observer_;
  std::unique_ptr<TraceRecorder> trace_;
  Engine engine_;
  StartingPoint start_;
  std::unique_ptr<Feed> feed_;
  std::function<std::unique_ptr<Feed>()> start_evaluation_;
  std::optional<JobState> state_;
  std::unique_ptr<CheckpointWriter> writer_;  // in the first process
  std::string fingerprint_;
  TrainResult result_;
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;
  std::optional<FeedBatch> next_batch_;
  Clock::time_point step_start_;
  std::atomic<double> waited_ = 0;  // for data, since the last step
  bool inputs_written_ = false;
  int64_t same_losses_ = 0;
  double used_scale_ = 1;  // of the steps under way
};

// Data and settings first: what is wrong with them shows before anything is compiled.
void Trainer::open() {
  start_ = agree_on_start(job_, engine_, observer_);
  std::vector<RowRange> rows = engine_.rows();
  if (rows == std::vector<RowRange>{{0, job_.options.batch}}) rows.clear();
  const Manifest& manifest = start_.manifest;
  feed_ = data_.training({.epoch = manifest.epoch, .index = manifest.position}, rows);
  if (data_.evaluation) start_evaluation_ = data_.evaluation(rows);
  if (engine_.rank_group() != nullptr) {
    require_agreement(*engine_.rank_group(), describe_agreement(job_, network_, feed_->samples()));
  }
  if (job_.epochs > 0 && feed_->batches_per_epoch() < 1) {
    fail_input("--epochs means nothing with data that has none; use --steps.");
  }
  result_.step = result_.first_step = manifest.step;
  result_.total_steps = job_.steps > 0 ? job_.steps : job_.epochs * feed_->batches_per_epoch();
  job_.learning_rate.total_steps = result_.total_steps;
}

void Trainer::prepare() {
  engine_.set_activity("compiling");
  engine_.compile(job_, start_evaluation_ ? Purpose::training_and_evaluation : Purpose::training,
                  observer_);
  fingerprint_ = engine_.fingerprint();
  if (!job_.trace.empty()) {
    constexpr int64_t kEvents = 200000;
    trace_ = std::make_unique<TraceRecorder>(engine_.trace_devices(), kEvents);
    engine_.set_trace(trace_.get());
  }
  engine_.start(job_.seed);
  state_.emplace(engine_);
  result_.loss_scale = first_state(job_.loss_scale);
  const Watch everything = job_.loss_scale.in_use() ? Watch::weights : Watch::finite;
  engine_.watch(job_.check_finite ? everything : Watch::loss);
  if (!start_.checkpoint.empty()) {
    load_checkpoint(*state_, start_.checkpoint, start_.manifest);
    resume_loss_scale();
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
    load_weights(*state_, job_.load_weights);
  }
  if (saves() && writes()) {
    writer_ = std::make_unique<CheckpointWriter>(job_.checkpoint, job_.keep);
    writer_->reserve(*state_);
  } else if (saves()) {
    StateSnapshot nothing;
    take_snapshot(*state_, nothing);
  }
  observer_.on_start({.model = job_.model,
                      .batch = job_.options.batch,
                      .first_step = result_.first_step,
                      .total_steps = result_.total_steps,
                      .steps_per_epoch = feed_->batches_per_epoch(),
                      .devices = static_cast<int>(job_.plan.devices().size()),
                      .threads = engine_.device().threads(),
                      .arena_bytes = engine_.session().arena_bytes(),
                      .arithmetic = describe(job_.precision)});
}

void Trainer::resume_loss_scale() {
  const Json& saved = start_.manifest.loss_scale;
  if (!job_.loss_scale.in_use() || saved.is_null()) return;
  try {
    LossScaleState state = loss_scale_state_from(saved);
    if (!job_.loss_scale.dynamic) state.scale = job_.loss_scale.scale;
    engine_.set_skipped_updates(saved.at("skipped_updates").get<std::vector<int64_t>>());
    result_.loss_scale = state;
  } catch (const Json::exception&) {
    fail_input("'{}' has no valid field 'loss_scale'.",
               (start_.checkpoint / kManifestFile).string());
  }
}

// Steps that may run into each other: up to the next moment at which the whole job must stand
// still, and not so many that an interruption would wait long. They share a loss scale, so after
// an overflow there are few of them until it has proved itself.
int64_t Trainer::steps_at_once() const {
  int64_t most = 32;
  if (job_.loss_scale.dynamic) most = std::min(most, result_.loss_scale.good_steps + 1);
  if (!engine_.overlaps_steps()) return 1;
  const int64_t per_epoch = feed_->batches_per_epoch();
  int64_t count = 1;
  while (count < most && result_.step + count < result_.total_steps) {
    const int64_t step = result_.step + count;
    const bool epoch_ends = per_epoch > 0 && step % per_epoch == 0;
    if (epoch_ends || (saves() && job_.checkpoint_every.due(step, per_epoch)) ||
        (start_evaluation_ && job_.evaluation_every.due(step, per_epoch))) {
      break;
    }
    ++count;
  }
  return count;
}

void Trainer::steps() {
  step_start_ = Clock::now();
  waited_ = 0;
  Engine::Steps work;
  work.seed = job_.seed;
  work.first = result_.step;
  work.count = steps_at_once();
  work.learning_rate = [this](int64_t step) {
    return static_cast<float>(learning_rate_at(job_.learning_rate, step));
  };
  work.loss_scale = [this] {
    used_scale_ = result_.loss_scale.scale;
    return static_cast<float>(used_scale_);
  };
  work.next = [this]() -> const FeedBatch* {
    const auto start = Clock::now();
    next_batch_ = feed_->next();
    if (!next_batch_) {
      fail_job("The training data ended after step {} of {}.", result_.step, result_.total_steps);
    }
    waited_ = waited_ + seconds_since(start);
    return inputs_written_ ? nullptr : &*next_batch_;
  };
  work.finished = [this](int64_t step, const StepOutcome& outcome) { finish_step(step, outcome); };
  engine_.set_activity(fmt::format("step {}", result_.step + 1));
  const StepState state = {job_.seed, result_.step, work.learning_rate(result_.step)};
  try {
    engine_.train(work);
  } catch (const Suspicious& found) {
    fail_step(state, found.what());
  }
  if (feed_->constant() && !inputs_written_ && job_.plan.runs_whole()) {
    inputs_written_ = true;
    feed_->release();
  }
}

void Trainer::finish_step(int64_t step, const StepOutcome& outcome) {
  const double rate = learning_rate_at(job_.learning_rate, step);
  const double loss = outcome.loss;
  result_.step = step + 1;
  StepState state = {job_.seed, step, static_cast<float>(rate)};
  state.loss_scale = static_cast<float>(used_scale_);
  if (!feed_->constant() && !outcome.skipped) look_for_collapse(loss, state);
  move_loss_scale(state, outcome);
  const auto now = Clock::now();
  const double since_last = std::chrono::duration<double>(now - step_start_).count();
  const double seconds = outcome.seconds > 0 ? outcome.seconds : since_last;
  result_.losses.push_back(loss);
  result_.seconds.push_back(seconds);
  const double waited = waited_.exchange(0);
  result_.wait_seconds += waited;
  const double recent = recent_step_seconds();
  const auto samples = static_cast<double>(job_.options.batch);
  const int64_t per_epoch = feed_->batches_per_epoch();
  observer_.on_step(
      {.step = result_.step,
       .total_steps = result_.total_steps,
       .epoch = per_epoch > 0 ? step / per_epoch : 0,
       .samples = job_.options.batch,
       .loss = loss,
       .learning_rate = rate,
       .top1 = outcome.top1 / samples,
       .top5 = outcome.top5 / samples,
       .seconds = seconds,
       .wait_seconds = waited,
       .checkpoint_seconds = writer_ ? writer_->seconds_writing_since(step_start_) : 0,
       .samples_per_second = samples / recent,
       .seconds_left = recent * static_cast<double>(result_.total_steps - result_.step),
       .loss_scale = used_scale_,
       .skipped = outcome.skipped,
       .overflow = outcome.overflow});
  step_start_ = now;
}

void Trainer::move_loss_scale(const StepState& state, const StepOutcome& outcome) {
  LossScaleState& scale = result_.loss_scale;
  scale = after_step(job_.loss_scale, scale, used_scale_, outcome.skipped);
  result_.skipped_steps += outcome.skipped ? 1 : 0;
  if (!is_stuck(job_.loss_scale, scale)) return;
  std::string first = engine_.explain(state, Watch::finite);
  if (first.empty()) first = outcome.overflow;
  fail_job(
      "Gradients have overflowed in {} steps in a row, up to step {}, with the loss scale at its "
      "least, {:g}: {}; lower --lr, use --clip-norm, or lower --loss-scale-min.",
      scale.stuck, state.step + 1, used_scale_, first);
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
  if (saves() && job_.checkpoint_every.due(result_.step, per_epoch)) save_checkpoint();
}

void Trainer::evaluate_now() {
  const auto feed = start_evaluation_();
  std::optional<EvaluationReport> report = evaluate(engine_, *feed, job_.stop);
  inputs_written_ = false;
  if (!report) return;
  report->step = evaluated_step_ = result_.step;
  result_.evaluation = report;
  const bool is_best = !result_.best || report->top1 > result_.best->top1;
  if (is_best) result_.best = report;
  observer_.on_evaluation(*report);
  if (is_best && saves()) save_checkpoint();
}

void Trainer::save_checkpoint() {
  if (saved_step_ == result_.step) return;
  saved_step_ = result_.step;
  if (!writes()) {
    contribute(*state_);
    return;
  }
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
  if (job_.loss_scale.in_use()) {
    manifest.loss_scale = to_json(result_.loss_scale);
    manifest.loss_scale["skipped_updates"] = engine_.skipped_updates();
  }
  if (evaluated_step_ == result_.step) manifest.accuracy = result_.evaluation->top1;
  writer_->save(*state_, std::move(manifest));
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

// One file for the whole job; clocks of processes on one host are the same.
void Trainer::save_trace() {
  const TraceLog own = trace_->log();
  if (engine_.rank_group() == nullptr) {
    write_trace(job_.trace, own);
    return;
  }
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const TraceEvent& event : own.events) earliest = std::min(earliest, event.begin);
  const auto texts = gather_texts(*engine_.rank_group(), trace_to_json(own));
  const auto starts = gather_texts(*engine_.rank_group(), std::to_string(earliest));
  if (!writes()) return;
  std::vector<TraceLog> logs;
  std::vector<int64_t> offsets;  // each text counts from its own earliest event
  for (size_t i = 0; i < texts.size(); ++i) {
    logs.push_back(parse_trace(texts[i], "--trace"));
    offsets.push_back(std::stoll(starts[i]) - std::stoll(starts[0]));
  }
  write_trace(job_.trace, merge(logs, offsets));
}

void Trainer::finish() {
  result_.interrupted = result_.step < result_.total_steps;
  if (!result_.interrupted && start_evaluation_) evaluate_now();
  if (saves()) save_checkpoint();
  if (writer_) {
    writer_->wait();
    report_checkpoints();
  }
  if (!job_.save_weights.empty()) {
    try {
      save_weights(*state_, job_.save_weights, job_.model);
    } catch (const InputError& error) {
      fail_job("{}", error.what());
    }
  }
  if (trace_) save_trace();
  result_.threads = engine_.device().threads();
  result_.devices = describe_devices(engine_);
  result_.schedule = job_.plan.schedule_name();
  result_.reorders = engine_.training()->reorders;
  result_.recomputed = engine_.training()->recomputed;
  result_.in_place = engine_.training()->in_place;
  result_.skipped_records = feed_->skipped();
}

}  // namespace

TrainResult run_training(const TrainJob& job, TrainingObserver& observer) {
  check(job);
  const Graph network = build_model(job.model, job.options);
  return Trainer(job, network, data_of(job), observer).run();
}

TrainResult run_training(const TrainJob& job, const Workload& work, TrainingObserver& observer) {
  const TrainJob own = job_for(job, work);
  check(own);
  return Trainer(own, work.network, data_of(own, work), observer).run();
}

EvaluationResult run_evaluation(const TrainJob& job, TrainingObserver& observer) {
  const std::filesystem::path weights = weights_file(job, observer);
  const auto data = open_evaluation_data(job);
  Engine engine(job, Purpose::evaluation, observer);
  engine.start(job.seed);
  JobState state(engine);
  load_weights(state, weights);
  const auto feed = data->start();
  const auto report = evaluate(engine, *feed, job.stop);
  if (!report) fail_job("Stopped before the whole data set was evaluated.");
  return {*report, engine.device().threads(), engine.session().arena_bytes(),
          engine.evaluation()->breakdown};
}

}  // namespace millrace
