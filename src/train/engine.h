// A job's model: built, compiled and bound to the devices of this process.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/heartbeat.h"
#include "compile/compiler.h"
#include "kernels/convolution_choices.h"
#include "parallel/job_graphs.h"
#include "runtime/finite_check.h"
#include "train/batch_rows.h"
#include "train/evaluation.h"
#include "train/job.h"
#include "train/network.h"
#include "train/observer.h"
#include "train/pipeline.h"
#include "train/worker.h"

namespace millrace::train {

// The result of a face network.
inline constexpr std::string_view kEmbedding = "embedding";

enum class Purpose : uint8_t { training, training_and_evaluation, evaluation };

// What a step computed.
struct StepOutcome {
  // Results of one number of the network by their names: "loss", "top1" and so on, for the step's
  // whole batch.
  std::map<std::string, double, std::less<>> results = {};
  double seconds = 0;         // where steps are told of together: the share of each
  bool skipped = false;       // changed no weights (in some stage), as a gradient overflowed
  std::string overflow = {};  // where, as a clause

  // NaN if the network has no such result.
  double result(std::string_view name) const {
    const auto found = results.find(name);
    return found == results.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  }
  double loss() const { return result("loss"); }
};

// Owns the devices of this process with their programs and sessions, and its ends of the groups
// that join it to the others. Immovable; used by the thread that made it. All processes of a job
// call the same functions in the same order.
class Engine {
 public:
  // Divides the network and joins the processes; `compile` comes next.
  Engine(const StepSettings& job, const graph::Graph& network, TrainingObserver& observer);

  // With the network that the job names, compiled.
  Engine(const StepSettings& job, Purpose purpose, TrainingObserver& observer)
      : Engine(job, network_of(job), observer) {
    compile(job, purpose, observer);
  }

  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // How convolutions are computed: what `compile` chose, in all processes; and before that, what a
  // job that goes on is to choose again.
  const kernels::ConvolutionChoices::Methods& convolutions() const { return choices_.used(); }
  void adopt_convolutions(const kernels::ConvolutionChoices::Methods& methods) {
    choices_.adopt(methods);
  }

  // Compiles on the devices' threads. Throws InputError if the model does not fit the memory
  // limit; nothing has been allocated then.
  void compile(const StepSettings& job, Purpose purpose, TrainingObserver& observer);

  // Allocates the arenas; before that there are no sessions. Without a seed nothing is filled, for
  // weights that all come from a file.
  void start(std::optional<uint64_t> seed);

  const std::vector<std::unique_ptr<Worker>>& workers() const { return workers_; }
  const parallel::JobGraphs& graphs() const { return graphs_; }
  int rank() const { return groups_.rank(); }
  int ranks() const { return groups_.ranks(); }
  // A group of all processes; null for one alone.
  comm::Group* rank_group() { return rank_group_ ? &*rank_group_ : nullptr; }

  // The channels between stages.
  const PipelineLayout& layout() const { return layout_; }

  // Rows of each batch that this process feeds its devices with.
  const std::vector<RowRange>& rows() const { return rows_.ranges(); }

  // Steps one after the other, `first` and on. `next` gives the rows of each batch, on any thread;
  // null where the inputs of the last call are to be used again. `finished` is called for each
  // step, in order, on this thread.
  struct Steps {
    uint64_t seed = 0;
    int64_t first = 0;
    int64_t count = 1;
    std::function<float(int64_t step)> learning_rate;
    // Asked at each moment at which no step is under way; null: 1.
    std::function<float()> loss_scale;
    std::function<const FeedBatch*()> next;
    std::function<void(int64_t step, const StepOutcome&)> finished;
  };
  void train(const Steps& steps);

  // Updates of each stage that changed nothing; a resumed job sets what it had.
  const std::vector<int64_t>& skipped_updates() const { return skipped_updates_; }
  void set_skipped_updates(std::vector<int64_t> by_stage);

  // Whether steps overlap, so that `train` is best given many.
  bool overlaps_steps() const;

  int64_t classes() const { return classes_; }
  // Adds the scores of a batch; `finish_scores` sums them over the processes.
  void evaluate(const FeedBatch& batch, Scores& scores);
  // Likewise by the mean of the logits of several views of the same samples.
  void evaluate(std::span<const FeedBatch> views, Scores& scores);
  void finish_scores(Scores& scores);

  // What a face network makes of the images of a batch, a row for each, in every process.
  int64_t features() const { return features_; }
  std::vector<float> embed(const FeedBatch& batch);

  // Whether any process wants to stop.
  bool any(bool wish);

  // Ends the job in every process with this sentence; called before an exception leaves the job.
  void fail(const std::string& sentence) noexcept;
  // Waits until all processes have come to the end.
  void finish();
  void set_activity(const std::string& what);

  // Checks what the training programs compute; see runtime/finite_check.h.
  void watch(runtime::Watch what);
  // See explain_step; on a device alone, otherwise nothing.
  std::string explain(const kernels::StepState& step, runtime::Watch what);

  // Records what the devices do from now on; borrowed. Before `start`.
  void set_trace(runtime::TraceRecorder* trace) { trace_ = trace; }
  std::vector<runtime::TraceDevice> trace_devices() const;

  // A word that changes when any operator of any device is run by another implementation: the
  // same job with the same word gives the same bits.
  std::string fingerprint();

  // The first device of this process.
  runtime::Session& session() { return *workers_.front()->session; }
  backend::Device& device() { return *workers_.front()->device; }
  const compile::Program* training() const;
  const compile::Program* evaluation() const;
  const compile::Program& largest() const { return workers_.front()->largest(); }

 private:
  void make_workers();
  void join_workers();
  void compile_stages(const StepSettings& job, Purpose purpose);
  void share_choices(int root);
  compile::CompileOptions options_of(const Worker& worker, const StepSettings& job);
  void compile_worker(Worker& worker, const compile::CompileOptions& options, Purpose purpose);
  parallel::StageGraph local_graph(const Worker& worker) const;
  void train_segment(const Steps& steps);
  StepOutcome outcome_of(const StepShares& shares) const;
  void add_up(std::vector<StepShares>& shares);
  void start_pipeline();
  void inject_faults(const StepSettings& job);
  void note_overflows(std::vector<StepOutcome>& outcomes);
  std::string agree_on_source(std::string own);
  using SlotOf = std::function<const compile::Slot*(const Worker&)>;
  void collect(const FeedBatch& batch, const SlotOf& slot_of, int64_t columns,
               std::vector<float>& values);
  void collect_mean(std::span<const FeedBatch> views, const SlotOf& slot_of, int64_t columns,
                    std::vector<float>& values);

  parallel::Plan plan_;
  parallel::JobGraphs graphs_;
  comm::JobGroups groups_;
  std::unique_ptr<comm::Heartbeat> heartbeat_;
  std::optional<comm::Group> rank_group_;
  kernels::ConvolutionChoices choices_;
  std::vector<std::unique_ptr<backend::Device>> devices_;
  std::vector<std::unique_ptr<Worker>> workers_;
  BatchRows rows_;
  int64_t samples_ = 0;  // of a step
  int64_t classes_ = 0;
  int64_t features_ = 0;  // of an embedding; 0: the network makes none
  std::vector<int64_t> skipped_updates_;
  bool checks_overflow_ = false;
  bool agrees_ = false;  // all devices, before each update
  runtime::TraceRecorder* trace_ = nullptr;
  std::vector<std::string> result_names_;
  PipelineLayout layout_;
  std::optional<Pipeline> pipeline_;  // once it has started
};

}  // namespace millrace::train
