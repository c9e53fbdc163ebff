#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace millrace::train {
namespace {

constexpr double kLargest = 1e30;  // of a rate, which steps take in float32

}  // namespace

double learning_rate_at(const LearningRateSettings& settings, int64_t step) {
  using Kind = LearningRateSettings::Kind;
  if (step < settings.warmup_steps) {
    return settings.base * static_cast<double>(step + 1) /
           static_cast<double>(settings.warmup_steps);
  }
  const int64_t span = std::max<int64_t>(1, settings.total_steps - settings.warmup_steps);
  const double progress =
      static_cast<double>(std::min(step - settings.warmup_steps, span)) / static_cast<double>(span);
  const double range = settings.base - settings.final;
  switch (settings.kind) {
    case Kind::constant:
      return settings.base;
    case Kind::step: {
      const auto reached = std::count_if(settings.milestones.begin(), settings.milestones.end(),
                                         [&](int64_t milestone) { return milestone <= step; });
      return settings.base * std::pow(settings.gamma, static_cast<double>(reached));
    }
    case Kind::cosine:
      return settings.final + range * (1 + std::cos(std::numbers::pi * progress)) / 2;
    case Kind::polynomial:
      return settings.final + range * std::pow(1 - progress, settings.power);
  }
  return settings.base;
}

LearningRateSettings in_steps(LearningRateSettings settings, int64_t steps_per_epoch) {
  if (!settings.warmup_in_epochs && !settings.milestones_in_epochs) return settings;
  if (steps_per_epoch < 1) {
    fail_input("{} counts epochs, but the data has none; give steps.",
               settings.warmup_in_epochs ? "‹lr_warmup›" : "‹lr_milestones›");
  }
  if (settings.warmup_in_epochs) settings.warmup_steps *= steps_per_epoch;
  if (settings.milestones_in_epochs) {
    for (int64_t& milestone : settings.milestones) milestone *= steps_per_epoch;
  }
  settings.warmup_in_epochs = settings.milestones_in_epochs = false;
  return settings;
}

void check(const LearningRateSettings& settings) {
  const auto require = [](bool holds, std::string_view flag, double value, std::string_view need) {
    if (!holds) fail_input("{} is {}; it must be {}.", flag, value, need);
  };
  require(settings.base >= 0 && settings.base <= kLargest, "‹lr›", settings.base,
          "between 0 and 1e30");
  require(settings.final >= 0 && settings.final <= kLargest, "‹lr_final›", settings.final,
          "between 0 and 1e30");
  require(settings.warmup_steps >= 0, "‹lr_warmup_steps›",
          static_cast<double>(settings.warmup_steps), "at least 0");
  require(settings.gamma > 0 && settings.gamma <= 1e3, "‹lr_gamma›", settings.gamma,
          "above 0 and at most 1000");
  require(settings.power > 0 && settings.power <= 1e3, "‹lr_power›", settings.power,
          "above 0 and at most 1000");
  if (settings.kind == LearningRateSettings::Kind::step && settings.milestones.empty()) {
    fail_input("‹lr_schedule› step needs ‹lr_milestones›, the steps at which the rate drops.");
  }
  if (!std::is_sorted(settings.milestones.begin(), settings.milestones.end())) {
    fail_input("‹lr_milestones› must ascend.");
  }
  if (!settings.milestones.empty() && settings.milestones.front() < 0) {
    fail_input("‹lr_milestones› has {}; steps are counted from 0.", settings.milestones.front());
  }
}

std::string_view name_of(LearningRateSettings::Kind kind) {
  constexpr std::string_view kKinds[] = {"constant", "step", "cosine", "polynomial"};
  return kKinds[static_cast<size_t>(kind)];
}

}  // namespace millrace::train
