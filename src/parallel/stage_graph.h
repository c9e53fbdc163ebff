// The part of a network that one stage computes. Plain data; no threads.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/autodiff.h"

namespace millrace::parallel {

// A tensor that goes from the stage that makes it straight to another that reads it. Its gradient
// comes back, as "<name>.grad_from_<to>" on arrival, if a parameter lies behind it and the loss
// before it.
struct StageEdge {
  std::string name;
  graph::TensorType type;
  int from = 0;
  int to = 0;
  bool has_gradient = false;

  bool operator==(const StageEdge&) const = default;
};

// Edges in the order of the tensors' producers, then of the stages that read. `stages` is the stage
// of each operator, by OperatorId. Throws std::logic_error where an edge goes to an earlier stage.
std::vector<StageEdge> edges_between(const graph::Graph& forward, const std::vector<int>& stages);

// The pairs of stages, not neighbours, between which edges go.
std::vector<std::pair<int, int>> skips_among(const std::vector<StageEdge>& edges);

// The forward graph of one stage. Tensors that it receives are inputs (Role::input) with their own
// names; those it sends are results, behind the results of the whole graph that it makes.
struct StageGraph {
  int stage = 0;
  graph::Graph graph;
  std::vector<StageEdge> receives;
  std::vector<StageEdge> sends;
};

// Throws InputError naming a parameter that operators of two stages share: it would have to be
// kept equal.
StageGraph cut(const graph::Graph& forward, const std::vector<int>& stages, int stage);

// The name under which the gradient of a sent tensor arrives.
std::string arriving_gradient(const StageEdge& edge);

// Adds the backward pass of a stage, which may have been fused since it was cut: an input
// "<name>.grad_from_<to>" per sent tensor with a gradient, the loss where it is here, and a
// result "<name>.grad" per received tensor with one.
passes::BackwardPass differentiate_stage(StageGraph& stage);

}  // namespace millrace::parallel
