#include "compile/program.h"

#include <stdexcept>

namespace millrace {
namespace {

const Slot& find(const std::vector<Slot>& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.name == name) return slot;
  }
  throw std::logic_error("the program has no slot '" + std::string(name) + "'");
}

}  // namespace

std::string_view name_of(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::compute:
      return "compute";
    case InstructionKind::all_reduce:
      return "all_reduce";
    case InstructionKind::reduce_scatter:
      return "reduce_scatter";
    case InstructionKind::all_gather:
      return "all_gather";
    case InstructionKind::wait:
      return "wait";
  }
  return "unknown";
}

const Slot& Program::input(std::string_view name) const { return find(inputs, name); }
const Slot& Program::result(std::string_view name) const { return find(results, name); }

bool Program::has_phase(Phase wanted) const {
  for (const PhaseRange& range : phases) {
    if (range.phase == wanted) return true;
  }
  return false;
}

const PhaseRange& Program::phase(Phase wanted) const {
  for (const PhaseRange& range : phases) {
    if (range.phase == wanted) return range;
  }
  throw std::logic_error("the program has no phase '" + std::string(name_of(wanted)) + "'");
}

}  // namespace millrace
