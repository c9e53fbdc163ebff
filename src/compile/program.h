// What one device runs: kernels in order, every buffer at a fixed offset of one arena.
//
// A Program is plain data plus prepared kernels; it decides nothing at run time and allocates
// nothing. Persistent slots (parameters, running statistics, optimizer state) keep their contents
// from run to run, others only within a run. Immutable once compiled; its kernels are run by one
// thread at a time.
//
// A program is run whole or task by task, as a schedule's row says. Then several micro-batches may
// be under way, each in a slot of its own, and the parameters may have several versions: forward
// and backward read the one they are told to, updates write another. What a stage has from others
// it receives at the beginning of a task, and what they want it sends at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/instruction.h"
#include "compile/memory_breakdown.h"

namespace millrace::compile {

// A tensor of the program that the outside may name.
struct Slot {
  std::string name;
  graph::TensorType type;
  graph::Layout layout;
  graph::Role role = graph::Role::activation;
  graph::Initializer initializer;
  Address address = {};
  int64_t bytes = 0;
  graph::Slice slice = {};
  graph::Part part = {};
};

// The instructions of a schedule's tasks of one kind: [begin, end).
struct TaskRange {
  parallel::Work work = parallel::Work::forward;
  size_t begin = 0;
  size_t end = 0;
};

struct Program {
  std::vector<Instruction> instructions;
  // All instructions, range after range; a program that is only run whole has them in `forward`.
  // An update that runs behind its gradients belongs to backward.
  std::vector<TaskRange> tasks;
  std::vector<parallel::RouteEnd>
      channels;               // to other stages; their rings lie in ArenaRegion::channels
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

  // The instructions of such a task; null if all its work is done by another.
  const TaskRange* find(parallel::Work work) const;
  // Throws std::logic_error if there are none.
  const TaskRange& task(parallel::Work work) const;
  bool runs_whole() const { return tasks.size() == 1; }
  // Whether an input comes from another stage.
  bool receives(std::string_view input) const;
};

}  // namespace millrace::compile
