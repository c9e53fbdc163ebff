// Learning-rate schedules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace::train {

// Everything that decides the learning rate of a step. Plain data.
//
// The first `warmup_steps` steps rise linearly: step i (from 0) runs at (i + 1) / warmup_steps
// of the base rate. After that, with t steps since the warm-up and T steps from its end to the
// end of the job:
//   constant    base
//   step        base * gamma ^ (number of milestones reached); milestones count from step 0
//   cosine      final + (base - final) * (1 + cos(pi t / T)) / 2
//   polynomial  final + (base - final) * (1 - t / T) ^ power
struct LearningRateSettings {
  enum class Kind : uint8_t { constant, step, cosine, polynomial };

  Kind kind = Kind::constant;
  double base = 0.1;
  double final = 0;
  int64_t warmup_steps = 0;
  std::vector<int64_t> milestones = {};  // ascending
  double gamma = 0.1;
  double power = 2;
  int64_t total_steps = 0;
  // Whether these count epochs; `in_steps` makes steps of them.
  bool warmup_in_epochs = false;
  bool milestones_in_epochs = false;
};

// The same in steps, for data with so many in an epoch. Throws InputError if there are no epochs.
LearningRateSettings in_steps(LearningRateSettings settings, int64_t steps_per_epoch);

// The rate of a step, a pure function; steps beyond the end keep the last rate.
double learning_rate_at(const LearningRateSettings& settings, int64_t step);

// Throws InputError naming the flag at fault.
void check(const LearningRateSettings& settings);

std::string_view name_of(LearningRateSettings::Kind kind);

}  // namespace millrace::train
