// Jobs that have gone astray end with a sentence that says where.
#pragma once

#include <optional>
#include <string>

#include "train/engine.h"

namespace millrace::train {

// Ends a job whose step computed a value that is not finite; `found` is what was noticed first.
[[noreturn]] void fail_not_finite(const StepSettings& job, Engine& engine,
                                  const kernels::StepState& step, const std::string& found);

// Notices a network that has died: it gives every batch the same loss. Used by the loop's thread.
class CollapseWatch {
 public:
  // Throws JobError when it has been so for long. Not for a step that changed nothing, nor for
  // data that is the same in every step.
  void look(double loss, const kernels::StepState& step, Engine& engine);

 private:
  std::optional<double> last_loss_;
  int64_t same_losses_ = 0;
};

}  // namespace millrace::train
