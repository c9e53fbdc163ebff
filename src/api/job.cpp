#include "api/job.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "api/keywords.h"
#include "api/temporary.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "data/record_source.h"
#include "graph/optimizers.h"
#include "profile/prediction_here.h"
#include "train/feed/feeds.h"
#include "train/job_classes.h"
#include "train/network.h"
#include "train/weights.h"

namespace millrace::api {
namespace {

size_t choose(std::string_view what, const std::string& value,
              const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  fail_input("{} is '{}'; choose one of {}.", what, value, fmt::join(choices, ", "));
}

const graph::OptimizerDefinition& choose_optimizer(const std::string& name) {
  std::vector<std::string> names;
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    if (row.listed) names.emplace_back(row.name);
  }
  return graph::optimizer_named(names[choose("The optimizer", name, names)]);
}

void set_optimizer(train::TrainJob& job, const JobOptions& options) {
  const graph::OptimizerDefinition& row = choose_optimizer(options.optimizer);
  job.optimizer.name = row.name;
  job.optimizer.momentum = options.momentum;
  job.optimizer.weight_decay = options.weight_decay.value_or(row.weight_decay);
  using Kind = train::LearningRateSettings::Kind;
  constexpr Kind kKinds[] = {Kind::constant, Kind::step, Kind::cosine, Kind::polynomial};
  job.learning_rate.kind = kKinds[choose("The schedule", options.schedule,
                                         {"constant", "step", "cosine", "polynomial"})];
  job.learning_rate.milestones = options.milestones;
  job.learning_rate.base = options.learning_rate.value_or(row.learning_rate);
}

void set_devices(train::TrainJob& job, const JobOptions& options) {
  constexpr int kMostDevices = 1024;
  if (options.devices < 1 || options.devices > kMostDevices) {
    fail_input("The number of devices is {}; give 1 to {}.", options.devices, kMostDevices);
  }
  if (options.batch < 1 || options.batch > int64_t{1} << 20) {
    fail_input("The batch is {}; give 1 to {}.", options.batch, int64_t{1} << 20);
  }
  parallel::Placement devices = {};
  for (int i = 0; i < options.devices; ++i)
    devices.devices.push_back(parallel::DeviceId{.node = 0, .device = i});
  job.plan.stages = {devices};
  job.options.batch = options.batch * options.devices;
  job.threads = options.threads;
  job.device_memory = options.device_memory;
  constexpr graph::DataType kTypes[] = {graph::DataType::f32, graph::DataType::f16,
                                        graph::DataType::bf16};
  job.precision.type = kTypes[choose("The precision", options.precision, {"fp32", "fp16", "bf16"})];
}

// Passes on what a run tells. What a callback throws ends the run.
class CallingObserver : public train::TrainingObserver {
 public:
  CallingObserver(const Callbacks& callbacks, std::atomic<bool>& stop)
      : callbacks_(callbacks), stop_(stop) {}

  void on_activity(std::string_view what) override { require_going_on(what); }
  void on_start(const train::JobStart&) override { require_going_on("starting"); }
  void on_step(const train::StepReport& report) override {
    call([&] {
      if (callbacks_.on_step && !callbacks_.on_step(report)) stop_ = true;
    });
  }
  void on_evaluation(const train::EvaluationReport& report) override {
    call([&] {
      if (callbacks_.on_evaluation) callbacks_.on_evaluation(report);
    });
  }
  void on_message(train::Severity, std::string_view sentence) override {
    call([&] {
      if (callbacks_.on_message) callbacks_.on_message(with_keywords(sentence));
    });
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  template <typename Action>
  void call(Action&& action) {
    if (failure_) return;
    try {
      action();
    } catch (...) {
      failure_ = std::current_exception();
      stop_ = true;
    }
    end_team();  // of what was called
  }

  void require_going_on(std::string_view what) const {
    if (stop_ && !failure_) fail_job("Stopped while {}, before the first step.", what);
  }

  const Callbacks& callbacks_;
  std::atomic<bool>& stop_;
  std::exception_ptr failure_;
};

}  // namespace

Job::Job(const Model& model, const DataPart& train, const std::optional<DataPart>& valid,
         const JobOptions& options)
    : model_(model), train_(train), valid_(valid), job_(model.settings()) {
  job_.epochs = options.epochs;
  job_.steps = options.steps;
  job_.seed = options.seed;
  set_devices(job_, options);
  set_optimizer(job_, options);
  job_.options.label_smoothing = options.label_smoothing;
  if (train.options.image > 0) job_.options.image = train.options.image;
  if (!job_.checkpoint.empty()) {
    train::TrainingObserver silent;
    job_.load_weights = train::weights_file(job_, silent);
  }
  job_.best = false;
  job_.checkpoint = options.checkpoint;
  if (options.resume && options.checkpoint.empty()) {
    fail_input("‹resume› needs ‹checkpoint›, the directory of the run that goes on.");
  }
  job_.resume = options.resume;
  job_.trace = options.trace;
  set_training_data(job_, train);
  if (train.classes > job_.options.classes) {
    fail_input("The data has {} classes, and the model tells {} apart.", train.classes,
               job_.options.classes);
  }
  if (!train.class_names.empty()) job_.class_names = train.class_names;
  if (valid) {
    if (train.source.empty() != valid->source.empty()) {
      fail_input("Data in memory is measured on data in memory, and named data on named data.");
    }
    if (!valid->held_back && train.options.valid > 0) {
      fail_input("A share of the data is held back; measure on that.");
    }
    job_.evaluation_data = valid->source;
    job_.evaluation_every = {.steps = 0, .epochs = train.source == "synthetic" ? 0 : 1};
  } else if (train.options.valid > 0) {
    job_.evaluation_data = train.source;
  }
  job_.metric = train::metric_named(options.metric).name;
  job_.patience = options.patience;
}

Job::Job(const train::TrainJob& job) : model_(job), job_(job) {}

Plan Job::plan(int64_t device_memory) const {
  train::TrainJob job = job_;
  if (device_memory > 0) job.device_memory = device_memory;
  job.data.source = "synthetic";
  train::TrainingObserver silent;
  return Plan(profile::describe_plan(job, silent));
}

Run Job::train(const Callbacks& callbacks, std::atomic<bool>* stop) const {
  std::atomic<bool> own = false;
  std::atomic<bool>& ends = stop == nullptr ? own : *stop;
  CallingObserver observer(callbacks, ends);
  train::TrainJob job = job_;
  job.stop = &ends;
  std::shared_ptr<const std::filesystem::path> directory;
  if (job.checkpoint.empty()) {
    directory = temporary_directory();
    job.checkpoint = *directory;
  }
  Run run = train(job, observer, directory);
  observer.rethrow();
  if (!run.result().checkpoint_failure.empty()) {
    fail_job("The last checkpoint was not written: {}", run.result().checkpoint_failure);
  }
  return run;
}

Run Job::train(train::TrainingObserver& observer) const { return train(job_, observer, nullptr); }

Run Job::train(const train::TrainJob& job, train::TrainingObserver& observer,
               std::shared_ptr<const void> directory) const {
  train::TrainResult result;
  if (train_.records) {
    train::Workload work = {.network = train::network_of(job)};
    work.training = [&](train::FeedPosition start) {
      return train::make_training_feed(job, train_.records, start);
    };
    if (valid_) work.evaluation = [&] { return train::make_evaluation_feed(job, valid_->records); };
    result = train::run_training(job, work, observer);
  } else {
    result = train::run_training(job, observer);
  }
  Model trained = model_;
  trained.settings() = job_;
  trained.settings().checkpoint = job.checkpoint;
  trained.settings().load_weights.clear();
  trained.settings().evaluation_data.clear();
  trained.settings().data.valid_share = 0;
  trained.settings().stop = nullptr;
  return {trained, std::move(result), std::move(directory)};
}

std::string Run::timeline(int64_t steps) const {
  const std::filesystem::path& file = model_.settings().trace;
  if (file.empty()) fail_input("The run has no trace; give the job a file for one.");
  return timeline_of(file, steps);
}

Model Run::best() const {
  Model model = last();
  model.settings().best = result_.best.has_value();
  return model;
}

Model Run::last() const {
  Model model = model_.renewed();
  model.keep(directory_);
  return model;
}

}  // namespace millrace::api
