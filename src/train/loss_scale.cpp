#include "train/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace millrace::train {
namespace {

constexpr double kSmallest = 1.0 / 16777216;
constexpr double kLargestScale = 4294967296;

void require_scale(std::string_view flag, double value) {
  if (!(value >= kSmallest && value <= kLargestScale)) {
    fail_input("{} is {}; it must lie between 2^-24 and 2^32.", flag, value);
  }
}

}  // namespace

void check(const LossScaleSettings& settings) {
  require_scale("‹loss_scale›", settings.scale);
  require_scale("‹loss_scale_min›", settings.least);
  require_scale("‹loss_scale_max›", settings.most);
  if (settings.window < 1) {
    fail_input("‹loss_scale_window› is {}; it must be at least 1.", settings.window);
  }
  if (settings.least > settings.most) {
    fail_input("‹loss_scale_min› is {} but ‹loss_scale_max› is {}; the first must not be larger.",
               settings.least, settings.most);
  }
}

LossScaleState first_state(const LossScaleSettings& settings) {
  LossScaleState state;
  state.scale = settings.scale;
  if (settings.dynamic) state.scale = std::clamp(state.scale, settings.least, settings.most);
  return state;
}

LossScaleState after_step(const LossScaleSettings& settings, const LossScaleState& state,
                          double used, bool overflowed) {
  LossScaleState next = state;
  if (!settings.in_use()) return next;
  if (overflowed) {
    const bool lowest = !settings.dynamic || used <= settings.least;
    next.good_steps = 0;
    ++next.skipped;
    next.stuck = lowest ? state.stuck + 1 : 0;
    if (settings.dynamic) next.scale = std::min(state.scale, std::max(settings.least, used / 2));
    return next;
  }
  next.stuck = 0;
  ++next.good_steps;
  if (settings.dynamic && next.good_steps >= settings.window) {
    next.good_steps = 0;
    next.scale = std::min(settings.most, state.scale * 2);
  }
  return next;
}

bool is_stuck(const LossScaleSettings& settings, const LossScaleState& state) {
  return state.stuck >= settings.patience;
}

Json to_json(const LossScaleState& state) {
  return {{"scale", state.scale},
          {"good_steps", state.good_steps},
          {"skipped", state.skipped},
          {"stuck", state.stuck}};
}

LossScaleState loss_scale_state_from(const Json& json) {
  return {json.at("scale").get<double>(), json.at("good_steps").get<int64_t>(),
          json.at("skipped").get<int64_t>(), json.at("stuck").get<int64_t>()};
}

}  // namespace millrace::train
