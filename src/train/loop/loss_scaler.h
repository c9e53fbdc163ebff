// The loss scale of a running job.
#pragma once

#include "train/engine.h"
#include "train/loop/starting_point.h"
#include "train/loss_scale.h"

namespace millrace::train {

// Moves the scale with each step; owned by the loop and used by its thread. `use` fixes the scale
// of the steps that start next, of which `used` then tells.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleSettings& settings)
      : settings_(settings), state_(first_state(settings)) {}

  // Takes up what a checkpoint has, the engine's count of skipped updates included. Throws
  // InputError if the checkpoint's manifest is at fault.
  void resume(const StartingPoint& start, Engine& engine);

  // What a checkpoint keeps; null where gradients are not looked at.
  Json record(const Engine& engine) const;

  double use() { return used_ = state_.scale; }
  double used() const { return used_; }

  // Steps that may share a scale: after an overflow few, until the scale has proved itself.
  int64_t most_steps(int64_t most) const;

  // Throws JobError when the scale cannot be lowered and nothing but overflows comes of it.
  void finish_step(const kernels::StepState& step, const StepOutcome& outcome, Engine& engine);

  const LossScaleState& state() const { return state_; }

 private:
  LossScaleSettings settings_;
  LossScaleState state_;
  double used_ = 1;
};

}  // namespace millrace::train
