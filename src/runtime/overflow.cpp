#include "runtime/overflow.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "passes/optimizer.h"

namespace millrace {
namespace {

float* find_state(const Session& session, const Program& program, std::string_view name) {
  for (const Slot& slot : program.state) {
    if (slot.name == name) return reinterpret_cast<float*>(session.address(program, slot));
  }
  return nullptr;
}

float* flag_of(const Session& session, const Program& program) {
  float* flag = find_state(session, program, kOverflowFlag);
  if (flag == nullptr) throw std::logic_error("the program does not look for overflow");
  return flag;
}

class FaultyKernel : public Kernel {
 public:
  FaultyKernel(std::shared_ptr<Kernel> kernel, std::vector<int64_t> steps)
      : kernel_(std::move(kernel)), steps_(std::move(steps)) {}

  uint64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }

  void run(const KernelArguments& arguments) override {
    kernel_->run(arguments);
    if (std::find(steps_.begin(), steps_.end(), arguments.step->step) == steps_.end()) return;
    arguments.output<float>(0)[0] = std::numeric_limits<float>::infinity();
  }

 private:
  std::shared_ptr<Kernel> kernel_;
  std::vector<int64_t> steps_;
};

// What first takes part in the backward pass, behind a head that updates itself.
bool begins_backward(const Instruction& instruction) {
  if (instruction.phase != Phase::backward || instruction.written.empty()) return false;
  const WrittenTensor& first = instruction.written[0];
  const bool is_gradient = instruction.type.find("_backward") != std::string::npos &&
                           !instruction.type.starts_with("margin_head");
  return is_gradient && first.is_output && first.index == 0 && first.dtype == DataType::f32;
}

}  // namespace

bool checks_overflow(const Program& program) { return !program.checked.empty(); }

bool has_overflowed(const Session& session, const Program& program) {
  return flag_of(session, program)[0] != 0;
}

Findings find(const Session& session, const Program& program) {
  const float* overflow = find_state(session, program, kOverflowFlag);
  const float* squares = find_state(session, program, kSquares);
  return {overflow != nullptr && overflow[0] != 0 ? 1.0f : 0.0f,
          squares == nullptr ? 0 : squares[0]};
}

void replace(Session& session, const Program& program, const Findings& all) {
  if (float* overflow = find_state(session, program, kOverflowFlag)) overflow[0] = all[0];
  if (float* squares = find_state(session, program, kSquares)) squares[0] = all[1];
}

std::string overflowed_parameter(const Session& session, const Program& program) {
  const auto number = static_cast<size_t>(flag_of(session, program)[1]);
  return number == 0 || number > program.checked.size() ? "" : program.checked[number - 1];
}

bool overflowed_before_sum(const Session& session, const Program& program) {
  const float* found = find_state(session, program, kOverflowProbe);
  return found != nullptr && *found != 0;
}

void inject_overflow(Program& program, const std::vector<int64_t>& steps) {
  const auto found =
      std::find_if(program.instructions.begin(), program.instructions.end(), begins_backward);
  if (found == program.instructions.end()) {
    throw std::logic_error("the program has no gradient that could overflow");
  }
  found->kernel = std::make_shared<FaultyKernel>(found->kernel, steps);
}

}  // namespace millrace
