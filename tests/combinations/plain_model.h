// A job as one device would do it that knows nothing of stages, schedules or replicas but which
// samples a batch norm sees together and how old the weights are that a micro-batch reads.
//
// The network is whole and runs one micro-batch after the other on one thread. Where weights are
// never old, the program's own update follows each step; otherwise each stage has the list of all
// versions of its weights, and updates are computed in float64.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "parallel/job_graphs.h"
#include "plain_optimizer.h"
#include "runtime/session.h"
#include "train/feed/feed.h"
#include "train/job.h"
#include "version_rule.h"

namespace millrace::combinations {

class PlainModel {
 public:
  // The stages of `newest` use no old weights.
  explicit PlainModel(const train::TrainJob& job, const std::set<int>& newest = {});

  // Weights and running statistics, and from a checkpoint also the state of the optimizer and, as
  // average:NAME, the average.
  void load(const std::filesystem::path& file);

  struct Step {
    int64_t step = 0;  // from 1
    double loss = 0;
    double learning_rate = 0;
  };

  // Steps `first` to `last` - 1 between two moments at which the pipeline is empty.
  void run(int64_t first, int64_t last, train::Feed& feed,
           const std::function<void(const Step&)>& told);

  // Keeps the exponential average of the weights of all steps: Polyak and Juditsky (1992), as
  // torch.optim.swa_utils.AveragedModel begins it, with the weights of the first step.
  void average(double decay) { average_decay_ = decay; }

  // weights.safetensors and optimizer.safetensors, as a checkpoint has them, and
  // average.safetensors.
  void save(const std::filesystem::path& directory) const;

 private:
  using Values = std::map<std::string, std::vector<float>>;

  struct Stage {
    std::map<std::string, TrainedTensor> tensors;  // the newest
    std::vector<Values> versions;                  // since the pipeline was empty
    std::map<std::string, std::vector<double>> sums;
    Values before;         // what the program had added up before the last micro-batch
    int64_t included = 0;  // micro-batches in the sums
    int64_t updates = 0;   // of the whole run
    std::vector<std::string> buffers;
    std::vector<Values> statistics;  // of each replica
  };

  bool stale() const;
  double learning_rate(int64_t step) const;
  void read_batch(const train::FeedBatch& batch, int64_t micro_batch);
  double run_micro_batch(int64_t step, int64_t micro_batch_of_step);
  void set_weights(int64_t micro_batch);
  void set_statistics(int64_t micro_batch);
  void keep_statistics(int64_t micro_batch);
  void add_gradients(int64_t step, int64_t micro_batch, bool last_of_all);
  void update(Stage& stage, int64_t step);
  void run_update(int64_t step);
  void update_average();
  const std::vector<float>* statistic(const std::string& name) const;
  const compile::Slot& slot(const std::string& name) const;
  std::vector<float> read(const std::string& name) const;

  train::TrainJob job_;
  parallel::JobGraphs graphs_;
  VersionRule rule_;
  PlainOptimizer optimizer_;
  backend::Device device_;
  compile::Program program_;
  std::unique_ptr<runtime::Session> session_;
  std::map<std::string, const compile::Slot*> slots_;
  std::vector<Stage> stages_;
  double average_decay_ = 0;
  std::map<std::string, std::vector<double>> average_;
};

}  // namespace millrace::combinations
