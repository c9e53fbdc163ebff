#include "simulate/costed_program.h"

#include <numeric>
#include <stdexcept>

namespace millrace::simulate {
namespace {

using Kind = CostedStep::Kind;

Kind work_kind_of(const compile::Instruction& instruction) {
  if (!instruction.exchanges()) return Kind::compute;
  if (instruction.ticket < 0) return Kind::together;
  return instruction.exchanged_bytes > 0 ? Kind::post : Kind::wait;
}

Collective collective_of(compile::InstructionKind kind) {
  if (kind == compile::InstructionKind::reduce_scatter) return Collective::reduce_scatter;
  return kind == compile::InstructionKind::all_gather ? Collective::all_gather
                                                      : Collective::all_reduce;
}

// Several tensors are summed by way of one buffer.
double packed_bytes(const compile::Instruction& instruction) {
  const compile::Exchange& exchange = instruction.exchange;
  const bool packs = instruction.kind == compile::InstructionKind::all_reduce &&
                     instruction.outputs.size() > exchange.counts.size();
  if (!packs) return 0;
  const int64_t elements =
      std::accumulate(exchange.counts.begin(), exchange.counts.end(), int64_t{0});
  return static_cast<double>(elements * exchange.element_bytes);
}

CostedSteps steps_of(const compile::Program& program, const compile::TaskRange& range,
                     const std::vector<InstructionCost>& costs) {
  CostedSteps steps;
  for (size_t i = range.begin; i < range.end; ++i) {
    const compile::Instruction& instruction = program.instructions[i];
    // Messages between stages and copies of versions have costs of their own.
    if (instruction.is_of_message() || instruction.copies_version()) continue;
    const Kind kind = work_kind_of(instruction);
    const bool goes_on = !steps.empty() && steps.back().kind == Kind::compute &&
                         steps.back().phase == instruction.phase;
    if (!goes_on) steps.push_back({.phase = instruction.phase});
    steps.back().seconds += costs[i].seconds;
    steps.back().busy_seconds += costs[i].busy_seconds;
    if (kind == Kind::compute) continue;
    steps.push_back({.kind = kind,
                     .phase = instruction.phase,
                     .bytes = static_cast<double>(instruction.exchanged_bytes),
                     .packed_bytes = packed_bytes(instruction),
                     .ticket = instruction.ticket,
                     .collective = collective_of(instruction.kind)});
  }
  return steps;
}

}  // namespace

CostedProgram cost_program(const compile::Program& program,
                           const std::vector<InstructionCost>& costs) {
  if (costs.size() != program.instructions.size()) {
    throw std::logic_error("a program is simulated with costs of another");
  }
  CostedProgram costed;
  for (const parallel::Work work :
       {parallel::Work::forward, parallel::Work::backward, parallel::Work::backward_input,
        parallel::Work::backward_weights, parallel::Work::update}) {
    const compile::TaskRange* range = program.find(work);
    if (range != nullptr) costed.tasks[work] = steps_of(program, *range, costs);
  }
  if (program.runs_whole()) {
    costed.persistent_bytes = static_cast<double>(program.arena_bytes);
    return costed;
  }
  const compile::MemoryMap& memory = program.memory;
  costed.persistent_bytes = static_cast<double>(memory.persistent() + memory.channels);
  costed.saved_bytes = static_cast<double>(memory.saved);
  costed.scratch_bytes = static_cast<double>(memory.scratch);
  return costed;
}

}  // namespace millrace::simulate
