#include "train/pipeline.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "train/stage_options.h"

namespace millrace {

PipelineLayout::PipelineLayout(const JobGraphs& graphs, const Schedule& schedule,
                               const std::vector<std::vector<int>>& devices, DataType wire)
    : request_{devices, graphs.edges(), graphs.plan().round_robin,
               channels_between(schedule, 2, skips_among(graphs.edges())), wire},
      routes_(routes_between(request_)) {
  const std::string fault = check(schedule, request_.channels);
  if (!fault.empty()) fail_input("The schedule cannot run: {}", fault);
}

std::vector<RouteEnd> PipelineLayout::ends(int stage, int member) const {
  return ends_of(routes_, stage, member);
}

int64_t PipelineLayout::channel_bytes(int stage, int member) const {
  return millrace::channel_bytes(ends(stage, member));
}

// Labels of steps whose images have been taken, until the last stage wants them.
struct Pipeline::Labels {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int64_t, std::vector<int32_t>> steps;
  bool failed = false;

  void put(int64_t step, std::span<const int32_t> values) {
    const std::lock_guard lock(mutex);
    steps[step].assign(values.begin(), values.end());
    changed.notify_all();
  }

  const std::vector<int32_t>& wait_for(int64_t step) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return failed || steps.contains(step); });
    if (failed) throw StageClosed("The data ended.");
    return steps.at(step);
  }

  void fail() {
    const std::lock_guard lock(mutex);
    failed = true;
    changed.notify_all();
  }
};

Pipeline::Pipeline(Options options) : options_(std::move(options)) {
  for (size_t i = 0; i < options_.workers.size(); ++i) {
    Worker& worker = *options_.workers[i];
    StageRunnerOptions settings{
        .lanes = {.stage = worker.stage,
                  .member = worker.member,
                  .request = options_.layout->request(),
                  .ends = options_.layout->ends(worker.stage, worker.member),
                  .messages = options_.messages[i],
                  .loopbacks = &loopbacks_,
                  .trace = options_.trace,
                  .trace_device = options_.trace_devices[i]},
        .micro_batch_rows = options_.graphs->micro_batch(),
        .results = options_.results};
    if (worker.collectives && !options_.graphs->plan().round_robin) {
      settings.agreement = worker.collectives->direct();
    }
    const Program& first = worker.training ? *worker.training : *worker.evaluation;
    stages_.push_back({&worker, std::make_unique<StageRunner>(
                                    settings, *worker.session, first,
                                    worker.evaluation ? &*worker.evaluation : nullptr)});
  }
}

RowRange Pipeline::rows(const Slot& slot, int64_t micro_batch) const {
  const int64_t samples = options_.graphs->micro_batch();
  const RowRange own = rows_of_slot(slot, samples);
  return {micro_batch * samples + own.begin, micro_batch * samples + own.end};
}

void Pipeline::feed(StageRunner& runner, int64_t number, const FeedBatch* batch,
                    int64_t micro_batch_of_step) const {
  std::vector<FedInput> inputs;
  std::vector<int32_t> labels;
  for (const Slot* slot : runner.fed_inputs()) {
    if (batch == nullptr) break;
    const auto first =
        static_cast<size_t>(options_.place_of_row(rows(*slot, micro_batch_of_step).begin));
    if (slot->type.dtype == DataType::s32) {
      const auto given = batch->labels.subspan(first, static_cast<size_t>(slot->type.shape[0]));
      labels.assign(given.begin(), given.end());
      std::replace(labels.begin(), labels.end(), kNoLabel, 0);
      inputs.push_back({slot, labels.data()});
    } else {
      const size_t row_size = batch->images.size() / batch->labels.size();
      inputs.push_back({slot, batch->images.data() + first * row_size});
    }
  }
  runner.feed(number, inputs);
}

void Pipeline::feed_images(const Work& work, Labels& labels) {
  const int64_t per_step = options_.graphs->plan().micro_batches;
  std::vector<int64_t> next(stages_.size(), 0);
  for (int64_t step = 0; step < work.count; ++step) {
    const FeedBatch* batch = work.next();
    if (batch != nullptr) labels.put(step, batch->labels);
    for (int64_t m = 0; m < per_step; ++m) {
      for (size_t i = 0; i < stages_.size(); ++i) {
        StageRunner& runner = *stages_[i].runner;
        const auto& inputs = runner.fed_inputs();
        const bool images = std::any_of(inputs.begin(), inputs.end(), [](const Slot* slot) {
          return slot->type.dtype != DataType::s32;
        });
        if (!images || next[i] == runner.micro_batches() ||
            runner.micro_batch(next[i]) != step * per_step + m) {
          continue;
        }
        feed(runner, next[i]++, batch, m);
      }
    }
  }
}

void Pipeline::feed_labels(Stage& stage, Labels& labels) {
  StageRunner& runner = *stage.runner;
  const int64_t per_step = options_.graphs->plan().micro_batches;
  for (int64_t i = 0; i < runner.micro_batches(); ++i) {
    const int64_t m = runner.micro_batch(i);
    const FeedBatch batch = {{}, labels.wait_for(m / per_step), {}};
    feed(runner, i, &batch, m % per_step);
  }
}

void Pipeline::run(const std::function<void(const std::vector<StageRunner*>&)>& device_work,
                   const std::vector<std::function<void()>>& feeders, StepQueue& queue,
                   const std::function<void(const StepSums&)>& take) {
  std::map<Device*, std::vector<StageRunner*>> by_device;
  for (Stage& stage : stages_) by_device[stage.worker->device].push_back(stage.runner.get());
  std::mutex mutex;
  std::exception_ptr first, closed;
  // A stage that fails closes itself before it says why: who waits for it may be heard earlier.
  const auto guarded = [&](const std::function<void()>& body) {
    try {
      body();
    } catch (const StageClosed&) {
      const std::lock_guard lock(mutex);
      closed = std::current_exception();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (first) return;
      first = std::current_exception();
      options_.stop(error.what());
      for (Stage& stage : stages_) stage.runner->close();
    }
  };
  // Whoever ends last closes the queue.
  std::atomic<size_t> running = by_device.size() + feeders.size();
  const auto run_to_end = [&](const std::function<void()>& body) {
    guarded(body);
    if (--running == 0) queue.close();
  };
  while (threads_.size() < feeders.size()) {
    threads_.push_back(std::make_unique<TaskThread>());
    threads_.back()->start([] { set_team_size(1); });
    threads_.back()->finish();
  }
  for (auto& [device, runners] : by_device) {
    const auto* list = &runners;
    device->start([&run_to_end, &device_work, list] { run_to_end([&] { device_work(*list); }); });
  }
  for (size_t i = 0; i < feeders.size(); ++i) {
    threads_[i]->start([&run_to_end, &feeder = feeders[i]] { run_to_end(feeder); });
  }
  guarded([&] {
    while (const std::optional<StepSums> entry = queue.pop()) take(*entry);
  });
  for (auto& entry : by_device) entry.first->finish();
  for (size_t i = 0; i < feeders.size(); ++i) threads_[i]->finish();
  if (first) std::rethrow_exception(first);
  if (closed) std::rethrow_exception(closed);
}

std::optional<Group> Pipeline::everyone_of(const StageRunner& runner) const {
  if (options_.everyone.empty()) return {};
  const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& stage) {
    return stage.runner.get() == &runner;
  });
  return options_.everyone[static_cast<size_t>(found - stages_.begin())];
}

void Pipeline::each_skip(
    const std::function<void(const Worker&, const SkippedUpdate&)>& take) const {
  for (const Stage& stage : stages_) {
    for (const SkippedUpdate& skip : stage.runner->skips()) take(*stage.worker, skip);
  }
}

void Pipeline::train(const Work& work) {
  const Plan& plan = options_.graphs->plan();
  const Schedule schedule = schedule_of(plan, work.count);
  StepQueue queue;
  const Segment segment = {.schedule = &schedule,
                           .seed = work.seed,
                           .first_step = work.first,
                           .learning_rate = work.learning_rate,
                           .loss_scale = work.loss_scale,
                           .steps = &queue};
  double parts = 0;  // that make up a step here
  for (Stage& stage : stages_) {
    stage.runner->set_updates(work.first);
    stage.runner->set_skipped(work.skipped.at(static_cast<size_t>(stage.worker->stage)));
    stage.runner->prepare(segment);
    if (stage.worker->stage + 1 == plan.stage_count()) {
      parts += static_cast<double>(stage.runner->micro_batches()) / static_cast<double>(work.count);
    }
  }
  Labels labels;
  std::vector<std::function<void()>> feeders = {[&] {
    try {
      feed_images(work, labels);
    } catch (...) {
      labels.fail();
      throw;
    }
  }};
  for (Stage& stage : stages_) {
    const auto& inputs = stage.runner->fed_inputs();
    if (inputs.empty() || std::any_of(inputs.begin(), inputs.end(), [](const Slot* slot) {
          return slot->type.dtype != DataType::s32;
        })) {
      continue;
    }
    feeders.push_back([this, &stage, &labels] { feed_labels(stage, labels); });
  }
  const auto run_device = [&](const std::vector<StageRunner*>& runners) {
    std::vector<int> rows;
    for (const StageRunner* runner : runners) rows.push_back(runner->row(schedule));
    run_stages(runners, schedule, tasks_of(schedule, rows, options_.layout->request().channels),
               everyone_of(*runners.front()));
  };
  std::map<int64_t, StepShares> sums;
  int64_t next = work.first;
  run(run_device, feeders, queue, [&](const StepSums& entry) {
    StepShares& sum = sums[entry.step];
    sum.results.resize(entry.results.size(), 0);
    for (size_t i = 0; i < entry.results.size(); ++i) sum.results[i] += entry.results[i];
    sum.parts += static_cast<double>(entry.micro_batches);
    while (sums.contains(next) && sums[next].parts >= parts - 0.5) {
      work.finished(next, sums[next]);
      ++next;
    }
  });
  // Steps that another process finishes, or whose parts are not divided evenly over replicas.
  for (; next < work.first + work.count; ++next) work.finished(next, sums[next]);
}

void Pipeline::evaluate(const FeedBatch& batch, const Evaluated& finished) {
  const int64_t micro_batches = options_.graphs->plan().micro_batches;
  std::vector<std::function<void()>> feeders;
  for (Stage& stage : stages_) {
    stage.runner->prepare_evaluation(micro_batches);
    if (stage.runner->fed_inputs().empty()) continue;
    feeders.push_back([this, &stage, &batch] {
      StageRunner& runner = *stage.runner;
      for (int64_t i = 0; i < runner.micro_batches(); ++i) {
        feed(runner, i, &batch, runner.micro_batch(i));
      }
    });
  }
  const auto take = [&](StageRunner& runner, int64_t micro_batch) {
    const auto found = std::find_if(stages_.begin(), stages_.end(), [&](const Stage& stage) {
      return stage.runner.get() == &runner;
    });
    finished(*found->worker, micro_batch);
  };
  StepQueue none;
  run([&](const std::vector<StageRunner*>& runners) { evaluate_stages(runners, take); }, feeders,
      none, [](const StepSums&) {});
}

}  // namespace millrace
