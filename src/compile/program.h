// What one device runs: kernels in order, every buffer at a fixed offset of one arena.
//
// A Program is plain data plus prepared kernels; it decides nothing at run time and allocates
// nothing. Persistent slots (parameters, running statistics, optimizer state) keep their contents
// from run to run, others only within a run. Immutable once compiled; its kernels are run by one
// thread at a time.
//
// A program is run whole or phase by phase. Run by phases, several micro-batches may be under way,
// each in a slot of its own, and the parameters may have several versions: forward and backward
// read the one they are told to, updates write another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/instruction.h"
#include "compile/memory_breakdown.h"

namespace millrace {

// A tensor of the program that the outside may name.
struct Slot {
  std::string name;
  TensorType type;
  Layout layout;
  Role role = Role::activation;
  Initializer initializer;
  Address address = {};
  int64_t bytes = 0;
  Slice slice = {};
  Part part = {};
};

// The instructions of one phase: [begin, end).
struct PhaseRange {
  Phase phase = Phase::forward;
  size_t begin = 0;
  size_t end = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<PhaseRange> phases;  // one for a program that is only run whole
  // What leads to gradients of weights alone, where it runs apart from the rest of backward.
  PhaseRange backward_weights = {Phase::backward, 0, 0};
  std::vector<Slot> state;    // persistent slots, in the order of the graph
  std::vector<Slot> inputs;   // to be written before a run; keep their contents across runs
  std::vector<Slot> results;  // readable after a run
  MemoryMap memory;
  int64_t arena_bytes = 0;  // memory.total()
  MemoryBreakdown breakdown;
  // Of a program that looks for overflow: the parameters whose gradients it looks at, in the order
  // in which the state kOverflowFlag counts them.
  std::vector<std::string> checked;
  // The last instruction that finds what stages which update together agree on: whether a gradient
  // has overflowed, the sum of all squares. 0: there is none.
  size_t agreement = 0;
  int reorders = 0;
  int recomputed = 0;         // operators that run twice
  int recomputed_costly = 0;  // of them, those that are not cheap
  int in_place = 0;

  // Throws std::logic_error if there is no such slot.
  const Slot& input(std::string_view name) const;
  const Slot& result(std::string_view name) const;

  // The range of a phase; an update that runs behind its gradients belongs to the backward phase.
  const PhaseRange& phase(Phase phase) const;
  bool has_phase(Phase phase) const;
};

}  // namespace millrace
