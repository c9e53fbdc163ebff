#include "profile/costed_program.h"

#include <algorithm>
#include <stdexcept>

namespace millrace {
namespace {

using Kind = CostedStep::Kind;

Kind work_kind_of(const Instruction& instruction) {
  if (!instruction.exchanges()) return Kind::compute;
  if (instruction.ticket < 0) return Kind::together;
  return instruction.exchanged_bytes > 0 ? Kind::post : Kind::wait;
}

CostedSteps steps_of(const Program& program, const PhaseRange& range,
                     const std::vector<InstructionCost>& costs, bool coarse) {
  CostedSteps steps;
  for (size_t i = range.begin; i < range.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    const Kind kind = work_kind_of(instruction);
    const bool goes_on = !steps.empty() && steps.back().kind == Kind::compute &&
                         (coarse || steps.back().phase == instruction.phase);
    if (!goes_on) steps.push_back({.phase = instruction.phase});
    steps.back().seconds += costs[i].seconds;
    steps.back().busy_seconds += costs[i].busy_seconds;
    if (kind == Kind::compute) continue;
    steps.push_back({.kind = kind,
                     .phase = instruction.phase,
                     .bytes = static_cast<double>(instruction.exchanged_bytes),
                     .ticket = instruction.ticket});
  }
  return steps;
}

}  // namespace

CostedProgram cost_program(const Program& program, const std::vector<InstructionCost>& costs,
                           bool coarse) {
  if (costs.size() != program.instructions.size()) {
    throw std::logic_error("a program is simulated with costs of another");
  }
  CostedProgram costed;
  const MemoryMap& memory = program.memory;
  costed.forward = steps_of(program, program.phase(Phase::forward), costs, coarse);
  if (!program.has_phase(Phase::backward)) {
    costed.persistent_bytes = static_cast<double>(program.arena_bytes);
    return costed;
  }
  costed.backward = steps_of(program, program.phase(Phase::backward), costs, coarse);
  costed.backward_weights = steps_of(program, program.backward_weights, costs, coarse);
  costed.updates_in_backward = !program.has_phase(Phase::update);
  if (!costed.updates_in_backward) {
    costed.update = steps_of(program, program.phase(Phase::update), costs, coarse);
  }
  costed.persistent_bytes = static_cast<double>(memory.persistent() + memory.channels);
  costed.saved_bytes = static_cast<double>(memory.saved);
  costed.scratch_bytes = static_cast<double>(memory.scratch);
  return costed;
}

std::vector<InstructionCost> analytic_costs(const Program& program, double operations_per_second,
                                            double bytes_per_second, double overhead_seconds) {
  std::vector<InstructionCost> costs;
  for (const Instruction& instruction : program.instructions) {
    const double seconds =
        overhead_seconds +
        (instruction.exchanges()
             ? 0.0
             : std::max(instruction.arithmetic / operations_per_second,
                        static_cast<double>(instruction.bytes_touched) / bytes_per_second));
    costs.push_back({seconds, seconds});
  }
  return costs;
}

}  // namespace millrace
