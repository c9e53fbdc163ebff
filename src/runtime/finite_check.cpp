#include "runtime/finite_check.h"

#include <algorithm>

namespace millrace::runtime {
namespace {

// An update of weights; what the gradients add up to may well be infinite in a step that is
// skipped.
bool changes_state(const compile::Instruction& instruction) {
  return instruction.phase == graph::Phase::update &&
         std::any_of(instruction.written.begin(), instruction.written.end(),
                     [](const kernels::WrittenTensor& tensor) {
                       return tensor.role == graph::Role::parameter ||
                              tensor.role == graph::Role::optimizer_state;
                     });
}

bool is_watched(const compile::Instruction& instruction, Watch what) {
  switch (what) {
    case Watch::loss:
      return std::any_of(
          instruction.written.begin(), instruction.written.end(),
          [](const kernels::WrittenTensor& tensor) { return tensor.name == "loss"; });
    case Watch::alive:
      return instruction.phase == graph::Phase::forward;
    case Watch::weights:
      return instruction.phase == graph::Phase::forward || changes_state(instruction);
    case Watch::finite:
      break;
  }
  return true;
}

std::string explain_state(Session& session, const compile::Program& program,
                          const compile::Slot& slot, std::string_view kind) {
  const kernels::TensorSpec spec = {slot.type, slot.layout};
  std::vector<std::byte> values(static_cast<size_t>(spec.bytes()));
  session.stream().give(
      backend::command::Read{session.address(program, slot), values.data(), spec.bytes()});
  session.stream().finish();
  const int64_t bad =
      kernels::count_not_finite(slot.type.dtype, values.data(), spec.physical_elements());
  if (bad == 0) return "";
  return fmt::format("{} of {} values of the {} '{}' are not finite", bad, spec.physical_elements(),
                     kind, slot.name);
}

}  // namespace

void watch(compile::Program& program, Watch what) {
  for (compile::Instruction& instruction : program.instructions) {
    instruction.watch = nullptr;
    // What goes on beside is looked at where it is waited for.
    const bool started =
        instruction.ticket >= 0 && instruction.kind != compile::InstructionKind::wait;
    if (started || !is_watched(instruction, what)) continue;
    instruction.watch =
        kernels::make_watch(fmt::format("layer '{}' ({}, {})", instruction.name, instruction.type,
                                        graph::name_of(instruction.phase)),
                            instruction.written, what == Watch::alive);
  }
}

std::string explain_step(Session& session, compile::Program& program,
                         const kernels::StepState& step, Watch what) {
  for (const compile::Slot& slot : program.inputs) {
    std::string clause = explain_state(session, program, slot, "input");
    if (!clause.empty()) return clause;
  }
  for (const compile::Slot& slot : program.state) {
    if (slot.role == graph::Role::buffer) continue;
    const std::string clause = explain_state(session, program, slot, graph::name_of(slot.role));
    if (!clause.empty()) return clause + " after the step before";
  }
  watch(program, what);
  try {
    session.run(program, step);
  } catch (const kernels::Suspicious& found) {
    return found.what();
  }
  return "";
}

}  // namespace millrace::runtime
