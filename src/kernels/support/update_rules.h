// The update rules of the optimizers, in one place for whole parameters (kernels/optimizer.cpp) and
// for rows of class centres (kernels/head/row_update.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/attributes.h"
#include "graph/optimizers.h"

namespace millrace::kernels {

// States of each kind: none, one, or two moments.
size_t state_count(graph::RuleKind kind);

// What some updates in a row do to a weight that gets no gradient, if it has none for all of them:
//   w' = weight * w + pull * m, m' = feed * w + first * m,
// and with AdamW w' = weight * w + pull * m / (sqrt(v) + epsilon), m' = first * m, v' = second * v.
struct Pause {
  double weight = 1;
  double pull = 0;
  double feed = 0;
  double first = 1;
  double second = 1;
  double spread = 0;  // of AdamW: pull with the deviations' squares, for epsilon
};

// The numbers of one step. Plain data.
struct RuleStep {
  graph::RuleKind kind = graph::RuleKind::plain;
  float rate = 0;      // AdamW: over the first moment's bias correction
  float decay = 0;     // added to the gradient; AdamW: what the weight is multiplied by
  float momentum = 0;  // AdamW: beta1
  float beta2 = 0;
  float share1 = 0;  // 1 - beta1, which would lose digits if it were computed in float
  float share2 = 0;  // 1 - beta2
  float epsilon = 0;
  float deviation = 0;  // AdamW: 1 / sqrt of the second moment's bias correction
  float scale = 1;      // of the gradient

  // One step of `count` elements; `states` has as many as the kind.
  void apply(float* weights, float* const* states, const float* gradient, int64_t count) const;

  // Of kinds whose step is fitted to its own norm, before `apply`: brings the states up to date and
  // returns the sum of the step's squares.
  double begin(const float* weights, float* const* states, const float* gradient,
               int64_t count) const;
};

// An optimizer's settings. Plain data.
struct UpdateRule {
  graph::RuleKind kind = graph::RuleKind::plain;
  double momentum = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;

  // `updates` counts those before this one.
  RuleStep at(double rate, int64_t updates, float scale) const;

  // The pause with one more update before it.
  Pause preceded(const Pause& pause, double rate, int64_t updates) const;

  // Lets `count` elements wait.
  void apply(const Pause& pause, float* weights, float* const* states, int64_t count) const;
};

// By the end of an operator's type ("_momentum", "_adamw") and its attributes.
UpdateRule update_rule_of(graph::RuleKind kind, const graph::Attributes& attributes);

}  // namespace millrace::kernels
