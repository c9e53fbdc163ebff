#include "runtime/finite_check.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/parallel.h"

namespace millrace {
namespace {

constexpr int64_t kFiniteCheckGrain = 1 << 16;

// The bits that are all set in values that are not finite; 0 for types that have none.
uint32_t exponent_bits(DataType type) {
  switch (type) {
    case DataType::f32:
      return 0x7f800000;
    case DataType::f16:
      return 0x7c00;
    case DataType::bf16:
      return 0x7f80;
    case DataType::s32:
    case DataType::u8:
      break;
  }
  return 0;
}

template <typename Word>
int64_t count_with_bits(const std::byte* data, int64_t count, uint32_t bits) {
  std::atomic<int64_t> found = 0;
  parallel_ranges(count, kFiniteCheckGrain, [&](int, int64_t begin, int64_t end) {
    const auto* values = reinterpret_cast<const Word*>(data);
    int64_t here = 0;
    for (int64_t i = begin; i < end; ++i) here += (values[i] & bits) == bits ? 1 : 0;
    found += here;
  });
  return found;
}

int64_t count_not_finite(const WrittenTensor& tensor, const std::byte* data) {
  const uint32_t bits = exponent_bits(tensor.dtype);
  if (bits == 0) return 0;
  if (tensor.dtype == DataType::f32) return count_with_bits<uint32_t>(data, tensor.elements, bits);
  return count_with_bits<uint16_t>(data, tensor.elements, bits);
}

bool is_constant(const WrittenTensor& tensor, const std::byte* data) {
  if (exponent_bits(tensor.dtype) == 0 || tensor.elements < 2) return false;
  const int64_t bytes = tensor.elements * size_of(tensor.dtype);
  const int64_t width = size_of(tensor.dtype);
  return std::memcmp(data, data + width, static_cast<size_t>(bytes - width)) == 0;
}

class WatchedKernel : public Kernel {
 public:
  WatchedKernel(const Instruction& instruction, Watch what)
      : kernel_(instruction.kernel),
        place_(fmt::format("layer '{}' ({}, {})", instruction.name, instruction.type,
                           name_of(instruction.phase))),
        written_(instruction.written),
        what_(what) {}

  const std::shared_ptr<Kernel>& inner() const { return kernel_; }
  uint64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }

  void run(const KernelArguments& arguments) override {
    kernel_->run(arguments);
    for (const WrittenTensor& tensor : written_) {
      const std::byte* data =
          (tensor.is_output ? arguments.outputs : arguments.inputs)[tensor.index];
      const int64_t bad = count_not_finite(tensor, data);
      if (bad > 0) {
        throw Suspicious(fmt::format("{} gives {} of {} values of '{}' that are not finite", place_,
                                     bad, tensor.elements, tensor.name));
      }
      if (what_ == Watch::alive && is_constant(tensor, data)) {
        throw Suspicious(
            fmt::format("{} gives '{}' the same value everywhere", place_, tensor.name));
      }
    }
  }

 private:
  std::shared_ptr<Kernel> kernel_;
  std::string place_;
  std::vector<WrittenTensor> written_;
  Watch what_;
};

// An update of weights: it has no outputs, only inputs that it changes.
bool changes_state(const Instruction& instruction) {
  return instruction.phase == Phase::update && instruction.outputs.empty() &&
         instruction.type != "overflow_check";
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
  const WrittenTensor tensor = {slot.name, slot.type.dtype, spec.physical_elements(), true, 0};
  const int64_t bad = count_not_finite(tensor, session.address(program, slot));
  if (bad == 0) return "";
  return fmt::format("{} of {} values of the {} '{}' are not finite", bad, tensor.elements, kind,
                     slot.name);
}

}  // namespace

void watch(Program& program, Watch what) {
  for (Instruction& instruction : program.instructions) {
    if (const auto* watched = dynamic_cast<WatchedKernel*>(instruction.kernel.get())) {
      instruction.kernel = std::shared_ptr<Kernel>(watched->inner());
    }
    if (is_watched(instruction, what)) {
      instruction.kernel = std::make_shared<WatchedKernel>(instruction, what);
    }
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
