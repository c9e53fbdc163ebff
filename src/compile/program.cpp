#include "compile/program.h"

#include <algorithm>
#include <stdexcept>

namespace millrace::compile {
namespace {

const Slot& slot_named(const std::vector<Slot>& slots, std::string_view name) {
  for (const Slot& slot : slots) {
    if (slot.name == name) return slot;
  }
  throw std::logic_error("the program has no slot '" + std::string(name) + "'");
}

}  // namespace

std::string_view name_of(InstructionKind kind) {
  constexpr std::string_view kNames[] = {"compute",    "copy",           "send",       "receive",
                                         "all_reduce", "reduce_scatter", "all_gather", "wait"};
  return kNames[static_cast<size_t>(kind)];
}

const Slot& Program::input(std::string_view name) const { return slot_named(inputs, name); }
const Slot& Program::result(std::string_view name) const { return slot_named(results, name); }

const TaskRange* Program::find(parallel::Work work) const {
  for (const TaskRange& range : tasks) {
    if (range.work == work) return &range;
  }
  return nullptr;
}

const TaskRange& Program::task(parallel::Work work) const {
  if (const TaskRange* found = find(work)) return *found;
  throw std::logic_error("the program has no task '" + std::string(parallel::name_of(work)) + "'");
}

bool Program::receives(std::string_view input) const {
  return std::any_of(channels.begin(), channels.end(), [&](const parallel::RouteEnd& end) {
    return !end.sends && end.tensor() == input;
  });
}

}  // namespace millrace::compile
