// What one device runs: kernels in order, every buffer at a fixed offset of one arena.
//
// A Program is plain data plus prepared kernels; it decides nothing at run time and allocates
// nothing. The arena is laid out as [persistent | transient]: persistent slots (parameters,
// running statistics, optimizer state) keep their contents from run to run, transient ones
// only within a run. Immutable once compiled; its kernels are run by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/memory_breakdown.h"
#include "graph/graph.h"
#include "kernels/kernel.h"

namespace millrace {

// A tensor of the program that the outside may name.
struct Slot {
  std::string name;
  TensorType type;
  Layout layout;
  Role role = Role::activation;
  Initializer initializer;
  int64_t offset = 0;
  int64_t bytes = 0;
  Slice slice = {};
};

struct Instruction {
  std::string name;
  std::string type;
  std::string implementation;
  Phase phase = Phase::forward;
  std::shared_ptr<Kernel> kernel;
  std::vector<int64_t> inputs;   // arena offsets
  std::vector<int64_t> outputs;  // arena offsets
  int64_t workspace = 0;         // arena offset
  double arithmetic = 0;         // floating-point operations
  int64_t bytes_touched = 0;     // inputs and outputs
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<Slot> state;    // persistent slots, in the order of the graph
  std::vector<Slot> inputs;   // to be written before a run; keep their contents across runs
  std::vector<Slot> results;  // readable after a run
  int64_t persistent_bytes = 0;
  int64_t arena_bytes = 0;
  MemoryBreakdown breakdown;
  int reorders = 0;
  int recomputed = 0;
  int in_place = 0;

  // Throws std::logic_error if there is no such slot.
  const Slot& input(std::string_view name) const;
  const Slot& result(std::string_view name) const;
};

}  // namespace millrace
