// How the class centres of margin heads take their steps.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "passes/optimizer.h"

namespace millrace::passes {

// Gives the heads of a graph their settings and state; see add_updates. Borrows everything.
class HeadUpdates {
 public:
  HeadUpdates(graph::Graph& graph, const OptimizerSettings& settings, const UpdateOptions& options)
      : graph_(graph), settings_(settings), options_(options) {}

  // A head whose operator margin_head_update `id` changes the centres in the backward pass.
  void complete(graph::OperatorId id);

  // Leaves of that operator the gradient of the embeddings; the centres take their step with all
  // other parameters (add_steps).
  void defer(graph::OperatorId id);
  bool has_deferred() const { return !deferred_.empty(); }

  // Adds the squares of the centres' gradients to a sum (kNone: there is none yet).
  graph::TensorId add_squares(graph::TensorId sum);

  // Behind everything that must be known before a step; kNone: there is none.
  void add_steps(graph::TensorId clip_scale, graph::TensorId skip);

 private:
  // The tensors beside the centres: states, then the clock of a head that is lazy
  // (graph/margin_head.h).
  struct Rule {
    std::string suffix;  // of the operator's type
    std::vector<graph::TensorId> states;
    int64_t state_count = 0;
    double rate_factor = 1;
    bool lazy = false;
  };

  struct Deferred {
    std::string name;
    Rule rule;
    graph::Attributes attributes;
    std::vector<graph::TensorId>
        inputs;  // gradient of the statistics, statistics, embeddings, sample
    graph::TensorId centres = graph::kNone;
  };

  Rule rule_of(graph::OperatorId id);
  void set(const Rule& rule, graph::Attributes& attributes) const;
  graph::TensorId state(graph::TensorId centres, const std::string& suffix);
  void add_clock(graph::TensorId centres, std::vector<graph::TensorId>& states);
  void keep_rows(Deferred& head, graph::OperatorId id);

  graph::Graph& graph_;
  const OptimizerSettings& settings_;
  const UpdateOptions& options_;
  std::vector<Deferred> deferred_;
};

}  // namespace millrace::passes
