// The loss scale: what gradients are multiplied by so that small ones do not vanish in 16 bits.
#pragma once

#include <cstdint>

#include "base/json.h"

namespace millrace::train {

// Fixed, or dynamic: doubled after `window` steps in a row without overflow, halved by a step whose
// gradients overflow, which changes nothing. Powers of two change no bit of a float32 result.
struct LossScaleSettings {
  bool dynamic = false;
  double scale = 1;  // the fixed one, or what a dynamic one starts with
  int64_t window = 2000;
  double least = 1;
  double most = 16777216;
  // Skipped steps in a row, when the scale cannot be lowered any more, that end the job.
  int64_t patience = 20;

  // Whether gradients are looked at.
  bool in_use() const { return dynamic || scale != 1; }

  bool operator==(const LossScaleSettings&) const = default;
};

inline constexpr double kFirstLossScale = 65536;

// What a checkpoint keeps of it. Plain data.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;  // in a row, since the scale last changed
  int64_t skipped = 0;     // steps in all
  int64_t stuck = 0;       // skipped in a row at the least scale

  bool operator==(const LossScaleState&) const = default;
};

// Throws InputError naming the flag at fault.
void check(const LossScaleSettings& settings);

LossScaleState first_state(const LossScaleSettings& settings);

// The state after a step that ran with the scale `used`. Where steps overlap, several may have been
// under way with one scale; together they halve it once.
LossScaleState after_step(const LossScaleSettings& settings, const LossScaleState& state,
                          double used, bool overflowed);

// Whether the job should end.
bool is_stuck(const LossScaleSettings& settings, const LossScaleState& state);

Json to_json(const LossScaleState& state);
// Throws Json's exceptions for other contents.
LossScaleState loss_scale_state_from(const Json& json);

}  // namespace millrace::train
