// Exact figures over a whole data set.
#pragma once

#include <atomic>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/feed/feed.h"
#include "train/observer.h"
#include "train/worst_samples.h"

namespace millrace::train {

// Says what the feed's data set passed over, if anything.
void tell_passed_over(const Feed& feed, TrainingObserver& observer);

// Says which damaged records the feed skipped, if any.
void tell_skipped(const Feed& feed, TrainingObserver& observer);

// What a model said of each sample, in the order of the data.
struct KeptLogits {
  std::vector<float> logits;  // samples × classes
  std::vector<int32_t> labels;
};

// Sums over samples; nothing depends on how they were cut into batches but the rounding of
// sums in double precision.
struct Scores {
  explicit Scores(int64_t classes) : sums(classes) {}

  MetricSums sums;
  KeptLogits* kept = nullptr;     // where rows are added too; borrowed
  WorstSamples* worst = nullptr;  // likewise those with images
};

// The images of rows, one after the other, and the place of the first in the data.
struct RowImages {
  std::span<const float> values = {};
  int64_t first_index = 0;
};

// Adds rows of logits (rows × classes, plain order), passing over rows with kNoLabel. A class
// counts as ahead of the label's if its logit is larger, or equal and its number smaller.
// Throws InputError if a label is not a class.
void add_scores(Scores& scores, std::span<const float> logits, std::span<const int32_t> labels,
                int64_t classes, const RowImages& images = {});

class Engine;

// Gives all devices of a stage the running statistics of its first, which checkpoints have.
void share_statistics(Engine& engine);

// Runs a job's evaluation programs over a feed to its end; rows that do not count are passed over.
// Nothing if `stop` (may be null) is set before that, in any process. `kept` (may be null) gets the
// rows of logits that this process scores, `worst` (likewise) the samples that it was wrong with.
std::optional<EvaluationReport> evaluate(Engine& engine, Feed& feed, const std::atomic<bool>* stop,
                                         KeptLogits* kept = nullptr, WorstSamples* worst = nullptr);

// Likewise by the mean of the logits of several views of the same samples.
std::optional<EvaluationReport> evaluate(Engine& engine,
                                         const std::vector<std::unique_ptr<Feed>>& views,
                                         const std::atomic<bool>* stop, KeptLogits* kept = nullptr,
                                         WorstSamples* worst = nullptr);

// The next batch of each view; nothing at the end.
std::vector<FeedBatch> next_of(const std::vector<Feed*>& views);

// A safetensors file with `logits` (samples × classes, f32) and `labels` (samples, s32).
void save_logits(const std::filesystem::path& path, const KeptLogits& kept,
                 const std::string& model);

}  // namespace millrace::train
