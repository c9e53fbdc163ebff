#include "train/pipeline.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "base/shortage.h"
#include "graph/margin_head.h"
#include "train/stage_options.h"

namespace millrace::train {
namespace {

// The same without gradients, and without rounding: an evaluation tells what one device would.
parallel::RouteRequest for_evaluation(parallel::RouteRequest request) {
  request.wire = graph::DataType::f32;
  for (parallel::StageEdge& edge : request.edges) edge.has_gradient = false;
  return request;
}

}  // namespace

PipelineLayout::PipelineLayout(const parallel::JobGraphs& graphs,
                               const parallel::Schedule& schedule,
                               const std::vector<std::vector<int>>& devices, graph::DataType wire)
    : request_{devices, graphs.edges(), graphs.plan().round_robin,
               parallel::channels_between(schedule, 2, parallel::skips_among(graphs.edges())),
               wire},
      routes_(parallel::routes_between(request_)),
      routes_of_evaluation_(parallel::routes_between(for_evaluation(request_))) {
  const std::string fault = parallel::check(schedule, request_.channels);
  if (!fault.empty()) fail_input("The schedule cannot run: {}", fault);
}

std::vector<parallel::RouteEnd> PipelineLayout::ends(int stage, int member) const {
  return parallel::ends_of(routes_, stage, member);
}

std::vector<parallel::RouteEnd> PipelineLayout::ends_of_evaluation(int stage, int member) const {
  return parallel::ends_of(routes_of_evaluation_, stage, member);
}

// Labels of steps whose images have been taken, until the last stage wants them.
struct Pipeline::Labels {
  std::mutex mutex;
  std::condition_variable changed;
  struct Rows {
    std::vector<int32_t> labels, mixing;
  };
  std::map<int64_t, Rows> steps;
  bool failed = false;

  void put(int64_t step, const FeedBatch& batch) {
    const std::lock_guard lock(mutex);
    steps[step].labels.assign(batch.labels.begin(), batch.labels.end());
    steps[step].mixing.assign(batch.mixing.begin(), batch.mixing.end());
    changed.notify_all();
  }

  const Rows& wait_for(int64_t step) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return failed || steps.contains(step); });
    if (failed) throw runtime::StageClosed("The data ended.");
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
    runtime::StageRunnerOptions settings{.stage = worker.stage,
                                         .member = worker.member,
                                         .messages = options_.messages[i],
                                         .loopbacks = &loopbacks_,
                                         .trace = options_.trace,
                                         .trace_device = options_.trace_devices[i],
                                         .micro_batch_rows = options_.graphs->micro_batch(),
                                         .results = options_.results};
    const bool in_turn = options_.graphs->plan().round_robin;
    if (in_turn) settings.turn = {worker.members, worker.member};
    settings.agreement = worker.agreement;
    const compile::Program& first = worker.training ? *worker.training : *worker.evaluation;
    stages_.push_back({&worker, std::make_unique<runtime::StageRunner>(
                                    settings, *worker.session, first,
                                    worker.evaluation ? &*worker.evaluation : nullptr)});
  }
  table_of(1);
}

std::map<backend::Device*, std::vector<runtime::StageRunner*>> Pipeline::runners_by_device() const {
  std::map<backend::Device*, std::vector<runtime::StageRunner*>> runners;
  for (const Stage& stage : stages_) runners[stage.worker->device].push_back(stage.runner.get());
  return runners;
}

const Pipeline::Table& Pipeline::table_of(int64_t steps) {
  if (table_ && table_->schedule.steps == steps) return *table_;
  table_ = {schedule_of(options_.graphs->plan(), steps), {}};
  for (const auto& [device, runners] : runners_by_device()) {
    std::vector<int> rows;
    for (const runtime::StageRunner* runner : runners)
      rows.push_back(runner->row(table_->schedule));
    table_->orders[device] =
        parallel::interleave(table_->schedule, rows, options_.layout->request().channels);
  }
  return *table_;
}

RowRange Pipeline::rows(const compile::Slot& slot, int64_t micro_batch) const {
  const int64_t samples = options_.graphs->micro_batch();
  const RowRange own = rows_of_slot(slot, samples);
  return {micro_batch * samples + own.begin, micro_batch * samples + own.end};
}

namespace {

// Each row with itself, as evaluations have it.
std::vector<int32_t> unmixed(std::span<const int32_t> labels) {
  std::vector<int32_t> mixing;
  for (const int32_t label : labels) {
    mixing.push_back(std::max(label, 0));
    mixing.push_back(data::kWholeShare);
  }
  return mixing;
}

}  // namespace

// Of the rows that a device has in all micro-batches; the last is repeated where there is room.
std::vector<int32_t> Pipeline::labels_of_step(const runtime::StageRunner& runner,
                                              const compile::Slot& slot,
                                              const FeedBatch& batch) const {
  const auto& inputs = runner.fed_inputs();
  const auto own = std::find_if(inputs.begin(), inputs.end(),
                                [](const compile::Slot* input) { return input->name == "labels"; });
  std::vector<int32_t> all;
  for (int64_t m = 0; m < options_.graphs->plan().micro_batches; ++m) {
    const RowRange range = rows(**own, m);
    const auto first = static_cast<size_t>(options_.place_of_row(range.begin));
    for (const int32_t label :
         batch.labels.subspan(first, static_cast<size_t>(range.end - range.begin))) {
      all.push_back(std::max(label, 0));
    }
  }
  all.resize(static_cast<size_t>(slot.type.shape.at(0)), all.back());
  return all;
}

void Pipeline::feed(runtime::StageRunner& runner, int64_t number, const FeedBatch* batch,
                    int64_t micro_batch_of_step) const {
  std::vector<runtime::FedInput> inputs;
  std::vector<int32_t> labels, mixing, step_labels;
  for (const compile::Slot* slot : runner.fed_inputs()) {
    if (batch == nullptr) break;
    const auto first =
        static_cast<size_t>(options_.place_of_row(rows(*slot, micro_batch_of_step).begin));
    if (slot->name == graph::kStepLabels) {
      step_labels = labels_of_step(runner, *slot, *batch);
      inputs.push_back({slot, step_labels.data()});
    } else if (slot->name == "mixing") {
      const auto count = static_cast<size_t>(slot->type.shape[0]);
      mixing = batch->mixing.empty()
                   ? unmixed(batch->labels.subspan(first, count))
                   : std::vector<int32_t>(batch->mixing.begin() + 2 * first,
                                          batch->mixing.begin() + 2 * (first + count));
      inputs.push_back({slot, mixing.data()});
    } else if (slot->type.dtype == graph::DataType::s32) {
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
    if (batch != nullptr) labels.put(step, *batch);
    for (int64_t m = 0; m < per_step; ++m) {
      for (size_t i = 0; i < stages_.size(); ++i) {
        runtime::StageRunner& runner = *stages_[i].runner;
        const auto& inputs = runner.fed_inputs();
        const bool images = std::any_of(
            inputs.begin(), inputs.end(),
            [](const compile::Slot* slot) { return slot->type.dtype != graph::DataType::s32; });
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
  runtime::StageRunner& runner = *stage.runner;
  const int64_t per_step = options_.graphs->plan().micro_batches;
  for (int64_t i = 0; i < runner.micro_batches(); ++i) {
    const int64_t m = runner.micro_batch(i);
    const Labels::Rows& rows = labels.wait_for(m / per_step);
    const FeedBatch batch = {{}, rows.labels, {}, rows.mixing};
    feed(runner, i, &batch, m % per_step);
  }
}

void Pipeline::run(
    const std::function<void(const std::vector<runtime::StageRunner*>&)>& device_work,
    const std::vector<std::function<void()>>& feeders, runtime::StepQueue& queue,
    const std::function<void(const runtime::StepSums&)>& take) {
  auto by_device = runners_by_device();
  std::mutex mutex;
  std::exception_ptr first, closed;
  // A stage that fails closes itself before it says why: who waits for it may be heard earlier.
  const auto guarded = [&](const std::function<void()>& body) {
    try {
      body();
    } catch (const runtime::StageClosed&) {
      const std::lock_guard lock(mutex);
      closed = std::current_exception();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      if (first) return;
      first = std::current_exception();
      options_.stop(failure_text(error));
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
    while (const std::optional<runtime::StepSums> entry = queue.pop()) take(*entry);
  });
  for (auto& entry : by_device) entry.first->finish();
  for (size_t i = 0; i < feeders.size(); ++i) threads_[i]->finish();
  if (first) std::rethrow_exception(first);
  if (closed) std::rethrow_exception(closed);
}

const Pipeline::Stage& Pipeline::stage_of(const runtime::StageRunner& runner) const {
  return *std::find_if(stages_.begin(), stages_.end(),
                       [&](const Stage& stage) { return stage.runner.get() == &runner; });
}

void Pipeline::each_skip(
    const std::function<void(const Worker&, const runtime::SkippedUpdate&)>& take) const {
  for (const Stage& stage : stages_) {
    for (const runtime::SkippedUpdate& skip : stage.runner->skips()) take(*stage.worker, skip);
  }
}

void Pipeline::train(const Work& work) {
  const parallel::Plan& plan = options_.graphs->plan();
  const Table& table = table_of(work.count);
  runtime::StepQueue queue;
  const runtime::Segment segment = {.schedule = &table.schedule,
                                    .seed = work.seed,
                                    .first_step = work.first,
                                    .learning_rate = work.learning_rate,
                                    .loss_scale = work.loss_scale,
                                    .steps = &queue};
  std::vector<int64_t> parts(static_cast<size_t>(work.count), 0);  // that make up each step here
  for (Stage& stage : stages_) {
    stage.runner->set_updates(work.first);
    stage.runner->set_skipped(work.skipped.at(static_cast<size_t>(stage.worker->stage)));
    stage.runner->prepare(segment);
    if (stage.worker->stage + 1 == plan.stage_count()) {
      for (int64_t i = 0; i < stage.runner->micro_batches(); ++i) {
        ++parts[static_cast<size_t>(stage.runner->micro_batch(i) / plan.micro_batches)];
      }
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
    if (inputs.empty() || std::any_of(inputs.begin(), inputs.end(), [](const compile::Slot* slot) {
          return slot->type.dtype != graph::DataType::s32;
        })) {
      continue;
    }
    feeders.push_back([this, &stage, &labels] { feed_labels(stage, labels); });
  }
  const auto run_device = [&](const std::vector<runtime::StageRunner*>& runners) {
    const Stage& first = stage_of(*runners.front());
    std::optional<comm::Group> everyone;
    if (!options_.everyone.empty()) {
      everyone = options_.everyone[static_cast<size_t>(&first - stages_.data())];
    }
    runtime::run_stages(runners, table.schedule, table.orders.at(first.worker->device), everyone);
  };
  std::map<int64_t, StepShares> sums;
  int64_t next = work.first;
  run(run_device, feeders, queue, [&](const runtime::StepSums& entry) {
    StepShares& sum = sums[entry.step];
    sum.results.resize(entry.results.size(), 0);
    for (size_t i = 0; i < entry.results.size(); ++i) sum.results[i] += entry.results[i];
    sum.parts += static_cast<double>(entry.micro_batches);
    const int64_t end = work.first + work.count;
    for (; next < end; ++next) {
      const auto expected = static_cast<double>(parts[static_cast<size_t>(next - work.first)]);
      if (sums[next].parts < expected) break;
      work.finished(next, sums[next]);
    }
  });
  // Steps that another process finishes.
  for (; next < work.first + work.count; ++next) work.finished(next, sums[next]);
}

void Pipeline::evaluate(const FeedBatch& batch, const Evaluated& finished) {
  const int64_t micro_batches = options_.graphs->plan().micro_batches;
  std::vector<std::function<void()>> feeders;
  for (Stage& stage : stages_) {
    stage.runner->prepare_evaluation(micro_batches);
    if (stage.runner->fed_inputs().empty()) continue;
    feeders.push_back([this, &stage, &batch] {
      runtime::StageRunner& runner = *stage.runner;
      for (int64_t i = 0; i < runner.micro_batches(); ++i) {
        feed(runner, i, &batch, runner.micro_batch(i));
      }
    });
  }
  const auto take = [&](runtime::StageRunner& runner, int64_t micro_batch) {
    finished(*stage_of(runner).worker, micro_batch);
  };
  runtime::StepQueue none;
  run(
      [&](const std::vector<runtime::StageRunner*>& runners) {
        runtime::evaluate_stages(runners, take);
      },
      feeders, none, [](const runtime::StepSums&) {});
}

}  // namespace millrace::train
