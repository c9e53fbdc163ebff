// Exact figures over a whole data set.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "train/feed/feed.h"
#include "train/observer.h"

namespace millrace {

// Sums over samples; nothing depends on how they were cut into batches but the rounding of
// sums in double precision.
struct Scores {
  int64_t samples = 0;
  double loss = 0;
  int64_t top1 = 0;
  int64_t top5 = 0;
};

// Adds rows of logits (rows × classes, plain order), passing over rows with kNoLabel. A class
// counts as ahead of the label's if its logit is larger, or equal and its number smaller.
// Throws InputError if a label is not a class.
void add_scores(Scores& scores, std::span<const float> logits, std::span<const int32_t> labels,
                int64_t classes);

class Engine;

// Runs a job's evaluation programs over a feed to its end; rows that do not count are passed over.
// Nothing if `stop` (may be null) is set before that, in any process.
std::optional<EvaluationReport> evaluate(Engine& engine, Feed& feed, const std::atomic<bool>* stop);

}  // namespace millrace
