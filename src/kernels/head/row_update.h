// The optimizer's step on one row of centres and its state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/attributes.h"
#include "kernels/head/storage.h"
#include "kernels/kernel.h"

namespace millrace {

// Plain SGD has no state, momentum one tensor, AdamW two; the formulas are those of the update
// operators of other parameters (graph/operators/optimizer.cpp).
enum class RowOptimizer : uint8_t { plain, momentum, adamw };

struct RowUpdate {
  RowOptimizer optimizer = RowOptimizer::plain;
  DataType storage = DataType::f32;
  int64_t dimension = 0;
  double beta1 = 0, beta2 = 0, decay = 0;
  float epsilon = 0;
  float momentum = 0;
  bool nesterov = false;

  // Values of this step, set by at_step.
  uint64_t seed = 0;
  int64_t step = 0;
  float learning_rate = 0;
  float rate = 0;       // AdamW: learning rate over the first moment's bias correction
  float deviation = 0;  // AdamW: 1 / sqrt of the second moment's bias correction

  size_t state_count() const { return static_cast<size_t>(optimizer); }
  // Floats of scratch that `apply` needs.
  int64_t scratch_elements() const { return 3 * dimension; }

  RowUpdate at_step(const StepState& state) const;

  // The gradient of the row is gradient - along * centre. `number` counts rows over all parts of
  // the classes.
  void apply(const float* gradient, float along, int64_t number, std::byte* centre,
             std::byte* const* states, float* scratch) const;
};

RowUpdate row_update_of(std::string_view type, const Attributes& attributes, DataType storage,
                        int64_t dimension);

}  // namespace millrace
