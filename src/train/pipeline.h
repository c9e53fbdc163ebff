// The stages of a job that run on the devices of this process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/task_thread.h"
#include "comm/job_groups.h"
#include "parallel/channels.h"
#include "parallel/job_graphs.h"
#include "runtime/stage_runner.h"
#include "train/feed/feed.h"
#include "train/worker.h"

namespace millrace::train {

// Results of a step, summed over what ran here; `parts` counts micro-batches and members.
struct StepShares {
  std::vector<double> results;  // in the order of Pipeline::Options::results
  double parts = 0;
};

// The channels between all devices of a plan; needed before the stages are compiled.
class PipelineLayout {
 public:
  // Float32 tensors travel as `wire` in training, and as they are in evaluations.
  PipelineLayout(const parallel::JobGraphs& graphs, const parallel::Schedule& schedule,
                 const std::vector<std::vector<int>>& devices, graph::DataType wire);

  const parallel::RouteRequest& request() const { return request_; }
  std::vector<parallel::RouteEnd> ends(int stage, int member) const;
  std::vector<parallel::RouteEnd> ends_of_evaluation(int stage, int member) const;

 private:
  parallel::RouteRequest request_;
  std::vector<parallel::Route> routes_, routes_of_evaluation_;
};

// Owns a runner for each worker, which it borrows with their sessions; used by one thread. All
// processes of the job call the same functions.
class Pipeline {
 public:
  struct Options {
    const parallel::JobGraphs* graphs = nullptr;
    const PipelineLayout* layout = nullptr;
    std::vector<Worker*> workers;
    std::vector<comm::Group> messages;  // of each worker's device
    // Likewise, of a group of all devices; none unless stages agree on their updates.
    std::vector<comm::Group> everyone;
    std::vector<int> trace_devices;  // of each worker
    runtime::TraceRecorder* trace = nullptr;
    std::vector<std::string> results;              // that each step tells of
    std::function<void(const std::string&)> stop;  // ends all groups of the job
    // Where a row of the step's batch lies among the rows that this process is fed.
    std::function<int64_t(int64_t)> place_of_row;
  };
  explicit Pipeline(Options options);

  // Steps [first, first + count) between two moments at which the pipeline is empty. `next` gives
  // a batch for each, in order, on a thread of the pipeline's, or null where every device still has
  // the inputs of the step before; `finished` is called in order, on
  // the calling thread, when a step's results from this process are there.
  struct Work {
    uint64_t seed = 0;
    int64_t first = 0;
    int64_t count = 1;
    float loss_scale = 1;
    std::vector<int64_t> skipped;  // updates before, of each stage
    std::function<float(int64_t step)> learning_rate;
    std::function<const FeedBatch*()> next;
    std::function<void(int64_t step, const StepShares&)> finished;
  };
  void train(const Work& work);

  // The updates of the last call that changed nothing, of each worker here.
  void each_skip(
      const std::function<void(const Worker&, const runtime::SkippedUpdate&)>& take) const;

  // `finished` is called for each worker here and micro-batch while the results are there, on the
  // thread of the worker's device.
  using Evaluated = std::function<void(const Worker&, int64_t micro_batch)>;
  void evaluate(const FeedBatch& batch, const Evaluated& finished);

 private:
  struct Stage {
    Worker* worker;
    std::unique_ptr<runtime::StageRunner> runner;
  };
  struct Labels;
  // What every device here does in a segment, in order.
  struct Table {
    parallel::Schedule schedule;
    std::map<const backend::Device*, std::vector<parallel::RowTask>> orders;
  };

  // Of segments of so many steps; decided once, as long as they are as long.
  const Table& table_of(int64_t steps);
  std::map<backend::Device*, std::vector<runtime::StageRunner*>> runners_by_device() const;
  RowRange rows(const compile::Slot& slot, int64_t micro_batch) const;
  std::vector<int32_t> labels_of_step(const runtime::StageRunner& runner, const compile::Slot& slot,
                                      const FeedBatch& batch) const;
  void feed(runtime::StageRunner& runner, int64_t number, const FeedBatch* batch,
            int64_t micro_batch_of_step) const;
  void feed_images(const Work& work, Labels& labels);
  void feed_labels(Stage& stage, Labels& labels);
  const Stage& stage_of(const runtime::StageRunner& runner) const;
  // Runs the devices and the feeders; rethrows the first error. Meanwhile entries of the queue are
  // handed to `take`, on the calling thread.
  void run(const std::function<void(const std::vector<runtime::StageRunner*>&)>& device_work,
           const std::vector<std::function<void()>>& feeders, runtime::StepQueue& queue,
           const std::function<void(const runtime::StepSums&)>& take);

  Options options_;
  runtime::Loopbacks loopbacks_;
  std::vector<Stage> stages_;
  std::optional<Table> table_;
  std::vector<std::unique_ptr<TaskThread>> threads_;  // of the feeders, as many as were needed
};

}  // namespace millrace::train
