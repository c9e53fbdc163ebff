#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "base/parallel.h"
#include "runtime/fill.h"

namespace millrace {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 18;  // bytes

TensorSpec spec_of(const Slot& slot) { return {slot.type, slot.layout}; }
TensorSpec plain_spec_of(const Slot& slot) { return {slot.type, Layout()}; }

void require_size(const Slot& slot, size_t count) {
  if (static_cast<int64_t>(count) != slot.type.elements()) {
    throw std::logic_error("wrong number of values for '" + slot.name + "'");
  }
}

int64_t largest_arena(const std::vector<const Program*>& programs) {
  int64_t bytes = 0;
  for (const Program* program : programs) bytes = std::max(bytes, program->arena_bytes);
  return bytes;
}

}  // namespace

Session::Session(Device& device, std::vector<const Program*> programs)
    : device_(device), programs_(std::move(programs)), arena_(largest_arena(programs_)) {
  size_t most = 0;
  for (const Program* program : programs_) {
    for (const Instruction& instruction : program->instructions) {
      most = std::max({most, instruction.inputs.size(), instruction.outputs.size()});
    }
  }
  inputs_.resize(most);
  outputs_.resize(most);
}

Session::~Session() = default;

void Session::require(const Program& program) const {
  if (std::find(programs_.begin(), programs_.end(), &program) == programs_.end()) {
    throw std::logic_error("the program does not belong to this session");
  }
}

std::byte* Session::address(const Program& program, const Slot& slot, int copy) const {
  return arena_.data() + program.memory.begin(slot.address.region, copy) + slot.address.offset;
}

void Session::run_one(const Program& program, const Instruction& instruction, const Frame& frame,
                      const StepState& step) {
  const bool update = instruction.phase == Phase::update;
  const auto pointer = [&](const Address& address) {
    int copy = 0;
    if (address.region == ArenaRegion::saved) copy = frame.slot;
    if (address.region == ArenaRegion::weights) copy = update ? frame.new_version : frame.version;
    return arena_.data() + program.memory.begin(address.region, copy) + address.offset;
  };
  std::transform(instruction.inputs.begin(), instruction.inputs.end(), inputs_.begin(), pointer);
  std::transform(instruction.outputs.begin(), instruction.outputs.end(), outputs_.begin(), pointer);
  instruction.kernel->run({{inputs_.data(), instruction.inputs.size()},
                           {outputs_.data(), instruction.outputs.size()},
                           pointer(instruction.workspace),
                           &step,
                           collectives_});
}

void Session::run_phase(const Program& program, const PhaseRange& range, const Frame& frame,
                        const StepState& step) {
  for (size_t i = range.begin; i < range.end; ++i) {
    run_one(program, program.instructions[i], frame, step);
  }
}

void Session::copy_version(int from, int to) {
  if (from == to) return;
  const MemoryMap& memory = programs_.front()->memory;
  const std::byte* source = arena_.data() + memory.begin(ArenaRegion::weights, from);
  std::byte* target = arena_.data() + memory.begin(ArenaRegion::weights, to);
  parallel_ranges(memory.weights, kCopyGrain, [&](int, int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

void Session::initialize(uint64_t seed) {
  std::vector<float> values;
  for (const Slot& slot : state()) {
    values.resize(static_cast<size_t>(slot.type.elements()));
    device_.run([&] {
      fill_slice(slot.initializer, slot.name, seed, slot.type.shape, slot.slice, values);
    });
    write_state(slot, values);
  }
}

void Session::run(const Program& program, const StepState& step) {
  require(program);
  const Frame frame = {0, version_, version_};
  device_.run([&] {
    run_phase(program, {Phase::forward, 0, program.instructions.size()}, frame, step);
  });
}

std::vector<InstructionTime> Session::run_timed(const Program& program, const StepState& step) {
  require(program);
  const Frame frame = {0, version_, version_};
  std::vector<InstructionTime> times(program.instructions.size());
  device_.run([&] {
    for (size_t i = 0; i < times.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      run_one(program, program.instructions[i], frame, step);
      const auto end = std::chrono::steady_clock::now();
      times[i] = {&program.instructions[i], std::chrono::duration<double>(end - start).count()};
    }
  });
  return times;
}

void Session::write_slot(const Program& program, const Slot& slot, const std::byte* values) {
  std::byte* target = address(program, slot, slot.role == Role::parameter ? version_ : 0);
  device_.run([&] { copy_between_layouts(plain_spec_of(slot), values, spec_of(slot), target); });
}

void Session::read_slot(const Program& program, const Slot& slot, std::byte* values) const {
  const std::byte* source = address(program, slot, slot.role == Role::parameter ? version_ : 0);
  device_.run([&] { copy_between_layouts(spec_of(slot), source, plain_spec_of(slot), values); });
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const float> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, reinterpret_cast<const std::byte*>(values.data()));
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const int32_t> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, reinterpret_cast<const std::byte*>(values.data()));
}

std::vector<float> Session::result(const Program& program, std::string_view name) const {
  const Slot& slot = program.result(name);
  std::vector<float> values(static_cast<size_t>(slot.type.elements()));
  read_slot(program, slot, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

float Session::scalar(const Program& program, std::string_view name) const {
  return *reinterpret_cast<const float*>(address(program, program.result(name)));
}

const std::vector<Slot>& Session::state() const { return programs_.front()->state; }

void Session::read_state(const Slot& slot, std::span<float> values) const {
  require_size(slot, values.size());
  read_slot(*programs_.front(), slot, reinterpret_cast<std::byte*>(values.data()));
}

void Session::write_state(const Slot& slot, std::span<const float> values) {
  require_size(slot, values.size());
  write_slot(*programs_.front(), slot, reinterpret_cast<const std::byte*>(values.data()));
}

}  // namespace millrace
