// A job of several stages put together as small as can be: compiled, connected, fed and run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/job_groups.h"
#include "compile/compiler.h"
#include "parallel/job_graphs.h"
#include "runtime/device_collectives.h"
#include "runtime/stage_runner.h"

namespace millrace::testing {

using Weights = std::map<std::string, std::vector<float>>;

inline constexpr uint64_t kSeed = 17;
inline constexpr float kLearningRate = 0.02f;

// Rows [begin, end) of the inputs of a step, plain: a function of (step, row, place) alone.
std::vector<float> images_of(const graph::Shape& row_shape, int64_t step, int64_t begin,
                             int64_t end);
std::vector<int32_t> labels_of(int64_t step, int64_t begin, int64_t end);

// The shape of one row, and which rows of a step a micro-batch's part has.
graph::Shape row_of(const compile::Slot& slot);
RowRange rows_of(const compile::Slot& slot, int64_t micro_batch, int64_t micro_batch_rows);

struct PipelineSpec {
  graph::Graph network;                   // with the samples of a step
  std::vector<std::vector<int>> devices;  // of each stage
  parallel::ScheduleKind schedule = parallel::ScheduleKind::one_f_one_b_flush;
  int64_t micro_batches = 1;
  int64_t steps = 1;  // of a segment
  bool round_robin = false;
  bool static_scheduling = true;
  bool evaluation = false;
  passes::OptimizerSettings optimizer = {};
  graph::DataType wire = graph::DataType::f32;
  passes::PrecisionSettings precision = {};
  passes::RecomputePolicy recompute = passes::RecomputePolicy::automatic;
  std::shared_ptr<backend::Backend> backend = {};  // null: this processor
  // Changes the training program of a device once it is compiled; may be empty.
  std::function<void(int device, compile::Program&)> spoil = {};
};

PipelineSpec spec_of(graph::Graph network, std::vector<std::vector<int>> devices,
                     parallel::ScheduleKind schedule, int64_t micro_batches, int64_t steps);

compile::CompileOptions compile_options(const passes::OptimizerSettings& optimizer);

class TestPipeline {
 public:
  explicit TestPipeline(const PipelineSpec& spec);

  // Runs the next segment.
  void train();

  // Mean losses of all steps so far.
  const std::vector<double>& losses() const { return losses_; }
  // Parameters and buffers, after a check that replicas have equal parameters. Replicas that take
  // micro-batches in turn have buffers (running statistics) of their own: those of the replicas
  // that run this one.
  Weights weights(int64_t micro_batch = 0) const;
  // The logits of so many micro-batches of step 0, row by row.
  std::vector<float> evaluate(int64_t micro_batches);

  const parallel::JobGraphs& graphs() const { return graphs_; }
  const parallel::Schedule& schedule() const { return schedule_; }
  std::vector<const runtime::StageRunner*> runners() const;
  std::vector<const compile::Program*> programs() const;

 private:
  struct Part {
    int stage;
    int member;
    int device;
    compile::Program training;
    std::unique_ptr<compile::Program> evaluation;
    std::unique_ptr<runtime::Session> session;
    std::unique_ptr<runtime::DeviceCollectives> collectives;
    std::unique_ptr<runtime::StageRunner> runner;
  };

  void compile(const PipelineSpec& spec);
  void connect(const PipelineSpec& spec);
  void feed(Part& part, int64_t first_step, int64_t micro_batches_per_step);
  void run(const std::function<void(const std::vector<runtime::StageRunner*>&)>& work,
           int64_t first_step, int64_t micro_batches_per_step);
  void note_steps(runtime::StepQueue& steps);

  parallel::Plan plan_;
  parallel::JobGraphs graphs_;
  parallel::Schedule schedule_;
  std::vector<parallel::Channel> channels_;
  parallel::RouteRequest request_;
  std::vector<parallel::Route> routes_;
  comm::JobGroups groups_;
  runtime::Loopbacks loopbacks_;
  std::vector<std::unique_ptr<backend::Device>> devices_;
  std::vector<std::unique_ptr<Part>> parts_;
  int64_t next_step_ = 0;
  std::vector<double> losses_;
};

// One device that runs the micro-batches of each step one after the other.
class TestAlone {
 public:
  TestAlone(const graph::Graph& network, int64_t micro_batches,
            const passes::OptimizerSettings& optimizer);

  // Forward and backward of one micro-batch; its gradients are added to those before unless it is
  // the first.
  double accumulate(int64_t step, int64_t micro_batch, bool first);
  void update(int64_t step);
  double train(int64_t step);

  Weights weights() const { return state(graph::Role::parameter); }
  Weights gradients() const { return state(graph::Role::accumulator); }
  Weights buffers() const { return state(graph::Role::buffer); }
  void set_weights(const Weights& weights);

 private:
  Weights state(graph::Role role) const;
  kernels::StepState step_state(int64_t step, int64_t micro_batch) const;

  int64_t micro_batches_;
  int64_t rows_;
  compile::Program program_;
  backend::Device device_;
  std::unique_ptr<runtime::Session> session_;
};

// Logits of one micro-batch of step 0 by one device with these parameters and buffers.
std::vector<float> evaluate_alone(const graph::Graph& network, int64_t micro_batch_rows,
                                  const Weights& weights, int64_t micro_batch);

// The largest distance between two tensors of one name, relative to the norm of the second.
double distance(const Weights& actual, const Weights& expected, std::string* where = nullptr);

}  // namespace millrace::testing
