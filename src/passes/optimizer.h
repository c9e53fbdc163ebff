// Adds the weight updates to a graph with gradients.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "passes/autodiff.h"

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

// Adds one operator "<parameter>/update" per gradient (Phase::update) and its state, tensors
// "<parameter>.momentum" or ".first_moment" and ".second_moment" that start at zero. LARS treats
// tensors of rank one or less as plain SGD with momentum.
//
// Each update stands directly behind the last operator that makes its gradient or reads its
// parameter, so that gradients live briefly; with clip_norm all updates stand at the end, behind
// the operators that measure the norm.
void add_updates(Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings);

}  // namespace millrace
