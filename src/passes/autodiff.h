// Adds the backward pass to a forward graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace millrace {

struct ParameterGradient {
  TensorId parameter;
  TensorId gradient;
};

// Appends backward operators, named "<forward name>/<type>", that compute the gradient of the
// sum of `loss` with respect to every parameter it depends on. Only tensors with a parameter
// behind them get gradients; several gradients of one tensor are added as soon as the next one
// arrives. Each parameter gradient is a tensor of its own, "<parameter>.grad", Role::gradient,
// read by no backward operator. Returns them in the order of the parameters' ids.
//
// Throws InputError if no parameter lies behind the loss, or naming an operator between the two
// that has no gradient rule.
std::vector<ParameterGradient> differentiate(Graph& graph, TensorId loss);

}  // namespace millrace
