// The exponential average of a job's weights.
#pragma once

#include <filesystem>
#include <vector>

#include "train/job_state.h"
#include "train/weights.h"

namespace millrace::train {

// After step t: decay * average + (1 - decay) * weights, and the weights themselves after the first
// one; of parameters and of running statistics, not of the class centres of a margin head. The
// first process has the numbers. Borrows the state; all processes call the same functions between
// steps.
class WeightAverage {
 public:
  WeightAverage(JobState& state, double decay);

  // Behind a step.
  void update();

  // Weights and average change places, if there is an average; called twice, all is as before.
  void exchange();

  // Goes on from what a checkpoint has; one without an average leaves none.
  void resume(const std::filesystem::path& checkpoint);

  // Empty before the first update.
  const StateSnapshot& values() const { return values_; }

 private:
  JobState& state_;
  double decay_;
  bool any_ = false;            // there is an average, in all processes
  std::vector<size_t> places_;  // of the tensors in the state
  StateSnapshot values_;        // in the first process
  std::vector<float> scratch_;
};

}  // namespace millrace::train
