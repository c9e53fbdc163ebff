// Adds the weight updates to a graph with gradients.
#pragma once

#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "passes/autodiff.h"
#include "passes/settings.h"

namespace millrace::passes {

inline constexpr std::string_view kOverflowFlag = "overflow";
inline constexpr std::string_view kOverflowProbe = "overflow_probe";
inline constexpr std::string_view kSquares = "gradient_squares";

// The devices that hold the same parameters, and how a step is made up.
struct UpdateOptions {
  int members = 1;
  int member = 0;
  // Each member keeps 1/members of the optimizer state, updates that part of the parameters and
  // gets the rest from the others.
  bool share_state = false;
  // Gradients of several micro-batches are summed before the update.
  bool accumulate = false;
  int64_t micro_batches = 1;  // of a step
  // Other stages update at the same moment; clip_norm is the norm of their gradients, too.
  bool with_stages = false;
  // No update happens unless all gradients of all members are finite.
  bool check_overflow = false;
  // The type in which gradients travel between members; see backend/communicator.h.
  graph::DataType wire = graph::DataType::f32;
  // Gradients smaller than this travel together.
  int64_t bucket_bytes = int64_t{8} << 20;
};

// Adds one operator "<parameter>/update" per gradient (Phase::update) and its state, tensors
// "<parameter>.momentum" or ".first_moment", ".second_moment" and ".updates", their number, that
// start at zero. LARS treats tensors of rank one or less as plain SGD with momentum; of a tensor
// that is split over the members it takes the norms of the whole.
//
// A margin head updates its own centres in the backward pass, and gets its settings and state
// here. Where something must be known before any update (clip_norm, check_overflow, accumulate) its
// operator is parted: the embeddings' gradient stays, the centres take their step in Phase::update,
// from what a step keeps of each micro-batch. clip_norm counts the centres' gradient.
//
// On a device alone each update stands directly behind the last operator that makes its gradient
// or reads its parameter, so that gradients live briefly; with clip_norm all updates stand at the
// end, behind the operators that measure the norm.
//
// With several members the gradients of parameters that all of them hold whole are summed: each
// bucket starts to travel behind the operator that makes its last gradient, and is waited for at
// the end of the backward pass. Parameters with a slice are a member's own and are not summed.
//
// With clip_norm and with_stages the sum of squares of this stage is kept in a tensor kSquares
// (shape {1}, likewise): before the operators behind "keep_squares" and "overflow_check" run it
// must have been replaced by the sum over all stages.
//
// With check_overflow all updates stand behind one operator "overflow_check", which writes a tensor
// kOverflowFlag (shape {2}, kept from step to step like an accumulator): first whether a gradient
// of any member is not finite, which every update reads and then changes nothing; then the number
// from 1 of this member's first such gradient, in the order of the attribute "parameters". With
// several members "overflow_probe" writes another, kOverflowProbe (shape {1}): whether this member
// had one before the gradients were summed.
void add_updates(graph::Graph& graph, const std::vector<ParameterGradient>& gradients,
                 const OptimizerSettings& settings, const UpdateOptions& options = {});

}  // namespace millrace::passes
