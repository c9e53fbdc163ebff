// What a user decides about the backward pass and the update. Plain data.
#pragma once

#include <cstdint>

namespace millrace {

struct OptimizerSettings {
  enum class Kind : uint8_t { sgd, adamw, lars };
  Kind kind = Kind::sgd;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double trust = 0.001;
  bool nesterov = false;
  double clip_norm = 0;    // the largest norm of all gradients together; 0 is no limit
  bool decay_all = false;  // otherwise tensors of rank one or less are not decayed
};

// Which forward operators run again in the backward pass instead of keeping what they made.
enum class RecomputePolicy : uint8_t {
  none,
  automatic,  // only where it lowers the peak, or brings it within the budget
  all,        // every candidate, if that lowers the peak at all
};

}  // namespace millrace
