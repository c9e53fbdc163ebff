#include "train/loop/divergence.h"

#include "base/error.h"

namespace millrace::train {

void fail_not_finite(const StepSettings& job, Engine& engine, const kernels::StepState& step,
                     const std::string& found) {
  const std::string first = job.check_finite ? found : engine.explain(step, runtime::Watch::finite);
  fail_job(
      "{} is not finite at step {} with learning rate {:g}: {}; lower ‹lr› or use ‹clip_norm›.",
      job.check_finite ? "A value" : "The loss", step.step + 1, step.learning_rate,
      first.empty() ? found : first);
}

void CollapseWatch::look(double loss, const kernels::StepState& step, Engine& engine) {
  constexpr int64_t kSteps = 100;
  constexpr double kConverged = 1e-6;
  const bool same = last_loss_ == loss;
  last_loss_ = loss;
  same_losses_ = same && loss > kConverged && step.learning_rate > 0 ? same_losses_ + 1 : 0;
  if (same_losses_ < kSteps) return;
  const std::string first = engine.explain(step, runtime::Watch::alive);
  fail_job(
      "The loss has been exactly {:g} since step {}: the network has collapsed{}{}; lower ‹lr› "
      "or use ‹clip_norm›.",
      loss, step.step + 1 - kSteps, first.empty() ? "" : ", ", first);
}

}  // namespace millrace::train
