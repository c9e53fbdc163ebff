#include "runtime/overflow.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "graph/operator_definition.h"
#include "kernels/faulty.h"
#include "passes/optimizer.h"

namespace millrace::runtime {
namespace {

const compile::Slot* find_state(const compile::Program& program, std::string_view name) {
  for (const compile::Slot& slot : program.state) {
    if (slot.name == name) return &slot;
  }
  return nullptr;
}

const compile::Slot& flag_of(const compile::Program& program) {
  const compile::Slot* flag = find_state(program, passes::kOverflowFlag);
  if (flag == nullptr) throw std::logic_error("the program does not look for overflow");
  return *flag;
}

// The first values of a slot, for which the calling thread waits.
std::array<float, 2> read(Session& session, const compile::Program& program,
                          const compile::Slot& slot) {
  std::array<float, 2> values = {};
  const auto bytes = static_cast<int64_t>(sizeof(values));
  session.stream().give(backend::command::Read{session.address(program, slot), values.data(),
                                               std::min(bytes, slot.type.elements() * 4)});
  session.stream().finish();
  return values;
}

// What first takes part in the backward pass, behind a head that updates itself.
bool begins_backward(const compile::Instruction& instruction) {
  if (instruction.phase != graph::Phase::backward || instruction.written.empty()) return false;
  const kernels::WrittenTensor& first = instruction.written[0];
  const graph::OperatorDefinition& definition = graph::definition_of(instruction.type);
  const bool is_gradient =
      definition.gradient != graph::OperatorDefinition::Gradient::none && !definition.is_head;
  return is_gradient && first.is_output && first.index == 0 && first.dtype == graph::DataType::f32;
}

}  // namespace

bool checks_overflow(const compile::Program& program) { return !program.checked.empty(); }

bool has_overflowed(Session& session, const compile::Program& program) {
  return read(session, program, flag_of(program))[0] != 0;
}

Findings find(Session& session, const compile::Program& program) {
  Findings found = {};
  if (const compile::Slot* overflow = find_state(program, passes::kOverflowFlag)) {
    found[0] = read(session, program, *overflow)[0] != 0 ? 1.0f : 0.0f;
  }
  if (const compile::Slot* squares = find_state(program, passes::kSquares)) {
    found[1] = read(session, program, *squares)[0];
  }
  return found;
}

void replace(Session& session, const compile::Program& program, const Findings& all) {
  const auto write = [&](std::string_view name, const float& value) {
    const compile::Slot* slot = find_state(program, name);
    if (slot == nullptr) return;
    session.stream().give(
        backend::command::Write{&value, session.address(program, *slot), sizeof(float)});
  };
  write(passes::kOverflowFlag, all[0]);
  write(passes::kSquares, all[1]);
  session.stream().finish();
}

std::string overflowed_parameter(Session& session, const compile::Program& program) {
  const auto number = static_cast<size_t>(read(session, program, flag_of(program))[1]);
  return number == 0 || number > program.checked.size() ? "" : program.checked[number - 1];
}

bool overflowed_before_sum(Session& session, const compile::Program& program) {
  const compile::Slot* found = find_state(program, passes::kOverflowProbe);
  return found != nullptr && read(session, program, *found)[0] != 0;
}

void inject_overflow(compile::Program& program, const std::vector<int64_t>& steps) {
  const auto found =
      std::find_if(program.instructions.begin(), program.instructions.end(), begins_backward);
  if (found == program.instructions.end()) {
    throw std::logic_error("the program has no gradient that could overflow");
  }
  constexpr int64_t kMostValues = 64;
  found->kernel =
      kernels::make_faulty(found->kernel, steps, std::min(kMostValues, found->written[0].elements));
}

}  // namespace millrace::runtime
