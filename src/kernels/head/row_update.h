// The optimizer's step on one row of centres and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/head/row_clock.h"
#include "kernels/head/storage.h"
#include "kernels/kernel.h"
#include "kernels/support/update_rules.h"

namespace millrace::kernels {

// The rule is that of other parameters; LARS treats the centres as SGD with momentum does.
struct RowUpdate {
  UpdateRule rule;
  double rate_factor = 1;  // of the learning rate
  graph::DataType storage = graph::DataType::f32;
  int64_t dimension = 0;

  // Values of this step, set by at_step.
  uint64_t seed = 0;
  int64_t step = 0;
  RuleStep now = {};

  size_t state_count() const { return kernels::state_count(rule.kind); }
  // Floats of scratch that `apply` needs.
  int64_t scratch_elements() const { return 3 * dimension; }

  double rate_of(const StepState& state) const {
    return rate_factor * static_cast<double>(state.learning_rate);
  }
  RowUpdate at_step(const StepState& state) const;

  // A row as it is stored. `number` counts rows over all parts of the classes, `place` those of
  // this part.
  struct Row {
    int64_t number = 0;
    int64_t place = 0;
    std::byte* centre = nullptr;
    std::byte* states[2] = {};
  };

  // `gradient` is that of the loss to the centre at length one, over its norm; it is projected
  // here. With `late` the row is brought up to date first.
  void apply(float* gradient, float norm, const Row& row, const LateRows* late,
             float* scratch) const;

  // Brings the row up to date alone.
  void settle(const Row& row, const LateRows& late, float* scratch) const;
};

RowUpdate row_update_of(std::string_view type, const graph::Attributes& attributes,
                        graph::DataType storage, int64_t dimension);

// Takes off a row's gradient what lies along its centre, whose length the loss does not depend on.
void project(float* gradient, const float* centre, float norm, int64_t dimension);

}  // namespace millrace::kernels
