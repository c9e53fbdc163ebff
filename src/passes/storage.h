// Keeps what the backward pass needs of the forward pass in 16 bits, while all arithmetic stays in
// float32.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"
#include "passes/settings.h"

namespace millrace::passes {

// What recompute made again stays in float32 for readers that follow; those more than so many
// operators later read 16 bits.
inline constexpr size_t kFarReader = 8;

struct StorageReport {
  int narrowed = 0;  // tensors
  int widened = 0;   // copies made for readers that need float32
};

// For each tensor whether it is kept in 16 bits if the backward pass reads it: f32 activations of
// some size that the forward pass or a clone of it makes, but none of exact operators
// (OperatorDefinition::exact) or layers to keep. Results are among them if they are fetched when
// the forward pass ends, and need not stay for the caller.
std::vector<bool> storable_tensors(const graph::Graph& graph, const PrecisionSettings& settings,
                                   bool results_fetched);

// Runs on a graph with its backward pass, clones for recomputation included, before layouts. A
// stored tensor is narrowed directly behind its producer, "<name>/narrow"; so is what a clone makes
// if it is read late (kFarReader). In the backward pass an
// operator that takes 16 bits (OperatorDefinition::stored_inputs) reads that; before others stands
// a cast back, shared by readers close to each other.
StorageReport store_in_16_bits(graph::Graph& graph, const PrecisionSettings& settings,
                               bool results_fetched = false);

}  // namespace millrace::passes
