// Which tensors could be recomputed, and in which order operators run then; used by recompute.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "graph/operator_definition.h"
#include "passes/recompute.h"

namespace millrace::passes {

// What one forward operator made, kept or made again together.
struct RecomputeCandidate {
  graph::OperatorId producer = graph::kNone;
  std::vector<graph::TensorId> tensors;  // what the clone makes, and views of that
  int64_t bytes = 0;                     // that keeping them takes
  int64_t bytes_moved = 0;               // by one run of the clone
  double cost = 0;                       // of one run, in bytes moved; arithmetic counts too
  bool cheap = true;
};

// Whether to recompute each tensor, by id: all of a candidate's tensors or none.
using RecomputeChoice = std::vector<bool>;

// What the planner counts with, by tensor or by operator; see liveness.h for roots.
struct RecomputeFacts {
  std::vector<const graph::OperatorDefinition*> definitions;  // by operator
  std::vector<std::vector<graph::TensorId>> written_by;       // by operator
  std::vector<graph::TensorId> roots;                         // by tensor: whose memory it is in
  std::vector<int64_t> bytes;                                 // by tensor; 0 if persistent
  std::vector<bool> is_stored;             // by tensor that owns memory: in 16 bits
  std::vector<bool> is_result;             // by tensor
  std::vector<bool> read_backward;         // by tensor
  std::vector<bool> memory_read_backward;  // by tensor that owns memory
};

// Reads the graph and never changes it; the graph must outlive it and stay as it is.
class RecomputePlanner {
 public:
  enum class Scope : uint8_t { cheap, any };

  explicit RecomputePlanner(const graph::Graph& graph, Scope scope = Scope::cheap,
                            const RecomputeOptions& options = {});

  const graph::Graph& graph() const { return graph_; }
  const RecomputeFacts& facts() const { return facts_; }
  const StepMemory& memory() const { return memory_; }

  // In the order of the forward pass if any operator may be recomputed.
  const std::vector<RecomputeCandidate>& candidates() const { return candidates_; }
  RecomputeChoice all() const;
  RecomputeChoice none() const;
  static void choose(RecomputeChoice& choice, const RecomputeCandidate& candidate, bool again);

  // The index of the candidate that makes a tensor, or -1.
  int candidate_of(graph::TensorId tensor) const {
    return candidate_of_[static_cast<size_t>(tensor)];
  }

  // What an operator's clone reads and makes.
  const std::vector<graph::TensorId>& clone_inputs(graph::OperatorId op) const {
    return clone_inputs_[static_cast<size_t>(op)];
  }
  const std::vector<graph::TensorId>& clone_outputs(graph::OperatorId op) const {
    return clone_outputs_[static_cast<size_t>(op)];
  }
  const graph::OperatorDefinition& clone_definition(graph::OperatorId op) const;

  // One operator of the new order: an operator of the graph, or its clone.
  struct Step {
    graph::OperatorId op = graph::kNone;
    bool again = false;
  };
  std::vector<Step> schedule(const RecomputeChoice& choice) const;

  // The most transient bytes in use at once under this choice, in-place outputs counted once; what
  // micro-batches keep between phases as often as there are such.
  int64_t peak(const RecomputeChoice& choice) const;

  // Of all clones.
  double cost(const RecomputeChoice& choice) const;

  // The operators whose clones would run behind one that writes one of their inputs: a choice is
  // sound if there are none.
  std::vector<graph::OperatorId> stale(const RecomputeChoice& choice) const;

 private:
  void gather_facts(const std::vector<bool>& storable);
  void find_candidates();
  void add_views();
  void drop_costly_candidates();
  void drop_stale_candidates();
  bool may_repeat(graph::OperatorId op) const;
  void consider(graph::TensorId tensor);
  void drop(const RecomputeCandidate& candidate);
  bool is_dropped(const RecomputeCandidate& candidate) const;
  bool kept_without(graph::TensorId tensor) const;
  int64_t kept_bytes(graph::TensorId tensor) const;

  const graph::Graph& graph_;
  const Scope scope_;
  const StepMemory memory_;
  RecomputeFacts facts_;
  std::vector<std::vector<graph::TensorId>> clone_inputs_;   // by operator
  std::vector<std::vector<graph::TensorId>> clone_outputs_;  // by operator
  std::vector<int> candidate_of_;                            // by tensor; -1 for none
  std::vector<RecomputeCandidate> candidates_;
};

}  // namespace millrace::passes
