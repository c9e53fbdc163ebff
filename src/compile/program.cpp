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
