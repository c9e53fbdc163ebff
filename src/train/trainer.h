// Runs jobs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/memory_breakdown.h"
#include "train/device_report.h"
#include "train/feed/feed.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

struct KeptLogits;

// What a finished job measured. Plain data.
struct TrainResult {
  int64_t first_step = 0;  // finished steps that a checkpoint brought along
  int64_t step = 0;        // finished steps in all
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 0;  // 0 where there are no epochs
  bool interrupted = false;
  bool ended_early = false;        // as evaluations got no better
  std::vector<double> losses;      // of the steps of this run
  std::vector<double> seconds;     // likewise
  LossScaleState loss_scale = {};  // after the last step
  int64_t skipped_steps = 0;       // of this run, which changed nothing
  double wait_seconds = 0;         // for data, in all
  int64_t skipped_records = 0;
  std::vector<std::string> skipped = {};       // a sentence for each of the first of them
  std::optional<EvaluationReport> evaluation;  // the last
  std::optional<EvaluationReport> best;
  std::string checkpoint_failure;  // why the last checkpoint could not be written, if so

  int threads = 0;  // of a device
  std::string schedule = {};
  std::vector<DeviceReport> devices = {};  // of the whole job
  int reorders = 0;
  int recomputed = 0;
  int in_place = 0;
};

// Runs a job from its first step, or from its newest checkpoint, to its end or until `stop` is
// set. Throws InputError before the first step for anything wrong with the job or its files, and
// JobError when a loss is not a number. A checkpoint that cannot be written is reported through
// the observer and training goes on; only the last one is noted in the result.
TrainResult run_training(const TrainJob& job, TrainingObserver& observer);

// A network and data of the caller's own, in place of the names in a job. The functions are
// called by the thread that runs the job.
struct Workload {
  graph::Graph network;  // a forward graph that ends in Builder::classify
  // Called once, with the place where the first batch starts.
  std::function<std::unique_ptr<Feed>(FeedPosition)> training = {};
  // Called for each evaluation; empty: none.
  std::function<std::unique_ptr<Feed>()> evaluation = {};
};

// As above, with the caller's network and data. The job's model is then no more than a label in
// checkpoints and reports; batch, classes and image size are those of the network, and the names
// of data sets are not used. Throws InputError if the network is not a classifier.
TrainResult run_training(const TrainJob& job, const Workload& work, TrainingObserver& observer);

// An evaluation alone: uses model, options, data, threads, device_memory, load_weights or
// checkpoint (its newest valid one) of the job. `kept` (may be null) gets the logits.
struct EvaluationResult {
  EvaluationReport report;
  int threads = 0;
  int64_t arena_bytes = 0;
  compile::MemoryBreakdown breakdown;
  double cosine_scale = 0;  // of a margin head, which is evaluated without its margin; else 0
};
// A network with a margin head tells the trained identities apart by the cosines to their centres.
// Throws InputError for weights without a classifier. Several `crops` of photographs (1, 5 or 10)
// are judged by the mean of their logits.
EvaluationResult run_evaluation(const TrainJob& job, TrainingObserver& observer,
                                KeptLogits* kept = nullptr, int crops = 1);

}  // namespace millrace::train
