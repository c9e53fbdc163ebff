#include "runtime/finite_check.h"

#include <algorithm>

namespace millrace {
namespace {

// An update of weights; what the gradients add up to may well be infinite in a step that is
// skipped.
bool changes_state(const Instruction& instruction) {
  return instruction.phase == Phase::update &&
         std::any_of(instruction.written.begin(), instruction.written.end(),
                     [](const WrittenTensor& tensor) {
                       return tensor.role == Role::parameter ||
                              tensor.role == Role::optimizer_state;
                     });
}

bool is_watched(const Instruction& instruction, Watch what) {
  switch (what) {
    case Watch::loss:
      return std::any_of(instruction.written.begin(), instruction.written.end(),
                         [](const WrittenTensor& tensor) { return tensor.name == "loss"; });
    case Watch::alive:
      return instruction.phase == Phase::forward;
    case Watch::weights:
      return instruction.phase == Phase::forward || changes_state(instruction);
    case Watch::finite:
      break;
  }
  return true;
}

std::string explain_state(Session& session, const Program& program, const Slot& slot,
                          std::string_view kind) {
  const TensorSpec spec = {slot.type, slot.layout};
  std::vector<std::byte> values(static_cast<size_t>(spec.bytes()));
  session.stream().give(command::Read{session.address(program, slot), values.data(), spec.bytes()});
  session.stream().finish();
  const int64_t bad = count_not_finite(slot.type.dtype, values.data(), spec.physical_elements());
  if (bad == 0) return "";
  return fmt::format("{} of {} values of the {} '{}' are not finite", bad, spec.physical_elements(),
                     kind, slot.name);
}

}  // namespace

void watch(Program& program, Watch what) {
  for (Instruction& instruction : program.instructions) {
    instruction.watch = nullptr;
    // What goes on beside is looked at where it is waited for.
    const bool started = instruction.ticket >= 0 && instruction.kind != InstructionKind::wait;
    if (started || !is_watched(instruction, what)) continue;
    instruction.watch = make_watch(fmt::format("layer '{}' ({}, {})", instruction.name,
                                               instruction.type, name_of(instruction.phase)),
                                   instruction.written, what == Watch::alive);
  }
}

std::string explain_step(Session& session, Program& program, const StepState& step, Watch what) {
  for (const Slot& slot : program.inputs) {
    std::string clause = explain_state(session, program, slot, "input");
    if (!clause.empty()) return clause;
  }
  for (const Slot& slot : program.state) {
    if (slot.role == Role::buffer) continue;
    const std::string clause = explain_state(session, program, slot, name_of(slot.role));
    if (!clause.empty()) return clause + " after the step before";
  }
  watch(program, what);
  try {
    session.run(program, step);
  } catch (const Suspicious& found) {
    return found.what();
  }
  return "";
}

}  // namespace millrace
