#include "train/loop/loss_scaler.h"

#include <algorithm>

#include "base/error.h"

namespace millrace::train {

void LossScaler::resume(const StartingPoint& start, Engine& engine) {
  const Json& saved = start.manifest.loss_scale;
  if (!settings_.in_use() || saved.is_null()) return;
  try {
    LossScaleState state = loss_scale_state_from(saved);
    if (!settings_.dynamic) state.scale = settings_.scale;
    engine.set_skipped_updates(saved.at("skipped_updates").get<std::vector<int64_t>>());
    state_ = state;
  } catch (const Json::exception&) {
    fail_input("'{}' has no valid field 'loss_scale'.",
               (start.checkpoint / kManifestFile).string());
  }
}

Json LossScaler::record(const Engine& engine) const {
  if (!settings_.in_use()) return {};
  Json json = to_json(state_);
  json["skipped_updates"] = engine.skipped_updates();
  return json;
}

int64_t LossScaler::most_steps(int64_t most) const {
  return settings_.dynamic ? std::min(most, state_.good_steps + 1) : most;
}

void LossScaler::finish_step(const kernels::StepState& step, const StepOutcome& outcome,
                             Engine& engine) {
  state_ = after_step(settings_, state_, used_, outcome.skipped);
  if (!is_stuck(settings_, state_)) return;
  std::string first = engine.explain(step, runtime::Watch::finite);
  if (first.empty()) first = outcome.overflow;
  fail_job(
      "Gradients have overflowed in {} steps in a row, up to step {}, with the loss scale at its "
      "least, {:g}: {}; lower ‹lr›, use ‹clip_norm›, or lower {}.",
      state_.stuck, step.step + 1, used_, first,
      settings_.dynamic ? "‹loss_scale_min›" : "‹loss_scale›");
}

}  // namespace millrace::train
