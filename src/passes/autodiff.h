// Adds the backward pass to a forward graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace millrace::passes {

struct ParameterGradient {
  graph::TensorId parameter;
  graph::TensorId gradient;
};

struct InputGradient {
  graph::TensorId input;
  graph::TensorId gradient;
};

// Where a backward pass begins: `gradient` arrives for `tensor`, as a tensor of the graph that the
// caller writes (Role::input). Without one, the tensor is a loss: its gradient is one.
struct GradientSeed {
  graph::TensorId tensor;
  graph::TensorId gradient = graph::kNone;
};

struct BackwardPass {
  std::vector<ParameterGradient> parameters;
  std::vector<InputGradient> inputs;
};

// Appends backward operators, named "<forward name>/<type>", that compute the gradient of the
// sum of `loss` with respect to every parameter it depends on. Only tensors with a parameter
// behind them get gradients; several gradients of one tensor are added as soon as the next one
// arrives. Each parameter gradient is a tensor of its own, "<parameter>.grad", Role::gradient,
// read by no backward operator. Returns them in the order of the parameters' ids.
//
// Throws InputError if no parameter lies behind the loss, or naming an operator between the two
// that has no gradient rule.
std::vector<ParameterGradient> differentiate(graph::Graph& graph, graph::TensorId loss);

// As above for a part of a network: from the seeds, of which several of one tensor are added, to
// the parameters and to the `wanted` inputs. A wanted gradient is a tensor of its own,
// "<input>.grad", and a result of the graph; a wanted input that no seed depends on has none.
// Where there is nothing to compute, nothing is added.
BackwardPass differentiate(graph::Graph& graph, const std::vector<GradientSeed>& seeds,
                           const std::vector<graph::TensorId>& wanted);

// For each tensor whether a parameter, or one of the `wanted`, lies behind it.
std::vector<bool> trained_tensors(const graph::Graph& graph,
                                  const std::vector<graph::TensorId>& wanted = {});

// Backward operators, in order, that lead to gradients of parameters alone: no gradient among the
// results needs them, so they may run after those have been sent on. In a graph without such
// results that is every one.
std::vector<graph::OperatorId> weight_gradient_operators(const graph::Graph& graph);

// Moves them behind the rest of the backward pass.
void defer_weight_gradients(graph::Graph& graph);

}  // namespace millrace::passes
