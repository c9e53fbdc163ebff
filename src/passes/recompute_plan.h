// Which tensors could be recomputed, and what a choice among them costs; used by recompute.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_definition.h"

namespace millrace {

struct RecomputeCandidate {
  TensorId tensor = kNone;
  OperatorId producer = kNone;
  std::vector<TensorId> inputs;  // of the clone
  int64_t bytes_moved = 0;       // by one run of the clone
};

// Whether to recompute each tensor, by id.
using RecomputeChoice = std::vector<bool>;

// Reads the graph and never changes it; the graph must outlive it and stay as it is.
class RecomputePlanner {
 public:
  // `storable`, by tensor or empty: what is kept in 16 bits if the backward pass reads it.
  explicit RecomputePlanner(const Graph& graph, const std::vector<bool>& storable = {});

  const std::vector<RecomputeCandidate>& candidates() const { return candidates_; }
  RecomputeChoice all() const;
  RecomputeChoice none() const;

  // One operator of the new order: an operator of the graph, or the clone of `candidate`.
  struct Step {
    OperatorId op = kNone;
    int candidate = -1;
  };
  std::vector<Step> schedule(const RecomputeChoice& choice) const;

  // The most transient bytes in use at once under this choice, in-place outputs counted once.
  int64_t peak(const RecomputeChoice& choice) const;

  // The tensors whose clones would run behind an operator that writes one of their inputs: a
  // choice is sound if there are none.
  std::vector<TensorId> stale(const RecomputeChoice& choice) const;

 private:
  class Sweep;

  void find_candidates();
  void drop_costly_candidates();
  void drop_stale_candidates();
  void consider(TensorId tensor);
  void drop(TensorId tensor);
  bool kept_without(TensorId tensor) const;
  int64_t kept_bytes(TensorId tensor) const;

  const Graph& graph_;
  std::vector<const OperatorDefinition*> definitions_;  // by operator
  std::vector<std::vector<TensorId>> written_by_;       // by operator
  std::vector<TensorId> roots_;                         // by tensor: whose memory it is in
  std::vector<int64_t> bytes_;                          // by tensor; 0 if persistent
  std::vector<bool> is_stored_;                         // by tensor that owns memory: in 16 bits
  std::vector<bool> is_result_;                         // by tensor
  std::vector<bool> read_backward_;                     // by tensor
  std::vector<bool> memory_read_backward_;              // by tensor that owns memory
  std::vector<int> candidate_of_;                       // by tensor; -1 for none
  std::vector<RecomputeCandidate> candidates_;
};

}  // namespace millrace
