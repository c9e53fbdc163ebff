// How gradients become sums over micro-batches and over devices; used by optimizer.cpp.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "passes/optimizer.h"

namespace millrace::passes {

// Whether the parameter is this member's alone, so that its gradient is complete as it is.
bool is_own(const graph::Graph& graph, graph::TensorId parameter, const UpdateOptions& options);

// Adds the operators that sum gradients, in buckets by the order in which the backward pass makes
// them. Borrows the graph; updates are added by the caller between `next` and `finish`.
class GradientExchange {
 public:
  // Adds what accumulates over micro-batches and what starts each bucket on its way. With `whole`
  // every member gets the whole sum even where the optimizer state is shared out.
  GradientExchange(graph::Graph& graph, const std::vector<ParameterGradient>& gradients,
                   const UpdateOptions& options, bool whole);

  // Whether a bucket is left.
  bool more() const { return next_ < buckets_.size(); }

  // Adds the wait for the next bucket; returns its parameters with their sums.
  std::vector<ParameterGradient> next();

  // Called when this member has updated its part of a parameter: sends it to the others.
  void share(graph::TensorId parameter);

  // Waits for everything that was shared.
  void finish();

 private:
  struct Bucket {
    std::vector<ParameterGradient> pairs;
    int64_t bytes = 0;
    size_t position = 0;  // in the order, of the operator that makes its last gradient
    bool travels = true;
    int64_t ticket = 0;
    graph::OperatorId start = graph::kNone;
  };

  void accumulate(std::vector<ParameterGradient>& pairs);
  void form_buckets(const std::vector<ParameterGradient>& pairs);
  void start(Bucket& bucket, bool whole);
  void move_starts_behind_gradients();

  graph::Graph& graph_;
  const UpdateOptions& options_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;
  int64_t tickets_ = 0;
  std::vector<int64_t> shared_;  // tickets
};

}  // namespace millrace::passes
