// Which evaluation of a run was the best, and whether better ones may still be hoped for.
#pragma once

#include <optional>

#include "base/json.h"
#include "train/observer.h"

namespace millrace::train {

// Watches the evaluations of a run. Plain data; a resumed run goes on from its record.
class BestModel {
 public:
  // `patience`: evaluations in a row without a better figure after which to stop; 0: never.
  BestModel(std::string metric, int64_t patience)
      : metric_(std::move(metric)), patience_(patience) {}

  // Whether it is better than all before.
  bool look(const EvaluationReport& report);

  // The best so far; nothing before the first evaluation.
  const std::optional<Measured>& figure() const { return best_; }

  bool exhausted() const { return patience_ > 0 && waited_ >= patience_; }

  // "No better top-1 for 3 evaluations; the best was top-1 93.00 % at step 400."
  std::string describe() const;

  Json record() const;
  void resume(const Json& record);

 private:
  std::string metric_;
  int64_t patience_;
  std::optional<Measured> best_;
  int64_t best_step_ = 0;
  int64_t waited_ = 0;  // evaluations since
};

}  // namespace millrace::train
