#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>

#include "base/parallel.h"
#include "base/parts.h"
#include "kernels/head/storage.h"
#include "runtime/fill.h"

namespace millrace {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 18;  // bytes
constexpr int64_t kFillChunk = int64_t{1} << 22;  // elements

TensorSpec spec_of(const Slot& slot) { return {slot.type, slot.layout}; }
TensorSpec plain_spec_of(const Slot& slot) { return {slot.type, Layout()}; }

void require_size(const Slot& slot, size_t count) {
  if (static_cast<int64_t>(count) != slot.type.elements()) {
    throw std::logic_error("wrong number of values for '" + slot.name + "'");
  }
}

void parallel_copy(const std::byte* source, std::byte* target, int64_t bytes) {
  parallel_ranges(bytes, kCopyGrain, [&](int, int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

int64_t largest_arena(const std::vector<const Program*>& programs) {
  int64_t bytes = 0;
  for (const Program* program : programs) bytes = std::max(bytes, program->arena_bytes);
  return bytes;
}

bool has_sixteen_bits(const Slot& slot) {
  return slot.type.dtype == DataType::f16 || slot.type.dtype == DataType::bf16;
}

// Values to a plain tensor, from element `first` on; what does not fit into 16 bits is rounded
// as the head rounds (kernels/head/storage.h).
void store(const Slot& slot, uint64_t seed, int64_t first, std::span<const float> values,
           std::byte* tensor) {
  store_row(slot.type.dtype, values.data(), static_cast<int64_t>(values.size()),
            rounding_key(seed, -1, first, 0), tensor + first * size_of(slot.type.dtype));
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
  find_carried();
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

std::byte* Session::channels() const {
  return arena_.data() + arena_.bytes() - programs_.front()->memory.channels;
}

KernelArguments Session::bind(const Program& program, const Instruction& instruction,
                              const Frame& frame, const StepState& step) {
  const bool update = instruction.phase == Phase::update;
  const auto pointer = [&](const Address& address) {
    int copy = 0;
    if (address.region == ArenaRegion::saved) copy = frame.slot;
    if (address.region == ArenaRegion::weights) copy = update ? frame.new_version : frame.version;
    return arena_.data() + program.memory.begin(address.region, copy) + address.offset;
  };
  std::transform(instruction.inputs.begin(), instruction.inputs.end(), inputs_.begin(), pointer);
  std::transform(instruction.outputs.begin(), instruction.outputs.end(), outputs_.begin(), pointer);
  return {{inputs_.data(), instruction.inputs.size()},
          {outputs_.data(), instruction.outputs.size()},
          pointer(instruction.workspace),
          &step,
          collectives_};
}

void Session::run_one(const Program& program, const Instruction& instruction, const Frame& frame,
                      const StepState& step) {
  instruction.kernel->run(bind(program, instruction, frame, step));
}

void Session::settle() {
  const Program& program = *programs_.front();
  const Frame frame = {0, version_, version_};
  const StepState step;
  device_.run([&] {
    for (const Instruction& instruction : program.instructions) {
      if (instruction.kernel) instruction.kernel->settle(bind(program, instruction, frame, step));
    }
  });
}

void Session::run_phase(const Program& program, const PhaseRange& range, const Frame& frame,
                        const StepState& step) {
  const bool carries = &program == programs_.front() && frame.newest_version >= 0 &&
                       frame.newest_version != frame.new_version;
  for (size_t i = range.begin; i < range.end; ++i) {
    if (carries) carry(i, frame);
    run_one(program, program.instructions[i], frame, step);
  }
}

void Session::find_carried() {
  const Program& program = *programs_.front();
  std::map<int64_t, const Slot*> waiting;
  for (const Slot& slot : program.state) {
    if (slot.role == Role::parameter) waiting[slot.address.offset] = &slot;
  }
  carried_.resize(program.instructions.size());
  for (size_t i = 0; i < carried_.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.phase != Phase::update) continue;
    for (const Address& address : instruction.inputs) {
      if (address.region != ArenaRegion::weights) continue;
      const auto found = waiting.find(address.offset);
      if (found == waiting.end()) continue;
      carried_[i].push_back(found->second);
      waiting.erase(found);
    }
  }
}

void Session::carry(size_t instruction, const Frame& frame) {
  const Program& program = *programs_.front();
  for (const Slot* slot : carried_[instruction]) {
    parallel_copy(address(program, *slot, frame.newest_version),
                  address(program, *slot, frame.new_version), slot->bytes);
  }
}

void Session::copy_version(int from, int to) {
  if (from == to) return;
  const MemoryMap& memory = programs_.front()->memory;
  const std::byte* source = arena_.data() + memory.begin(ArenaRegion::weights, from);
  std::byte* target = arena_.data() + memory.begin(ArenaRegion::weights, to);
  parallel_copy(source, target, memory.weights);
}

// Piece by piece where storage is plain, so that a large tensor needs no copy beside it.
void Session::initialize(uint64_t seed) {
  std::vector<float> values;
  for (const Slot& slot : state()) {
    if (slot.type.dtype == DataType::s32) {  // counts of updates
      device_.run([&] { std::memset(state_address(slot), 0, static_cast<size_t>(slot.bytes)); });
      continue;
    }
    const int64_t elements = slot.type.elements();
    const bool in_pieces = slot.layout.is_plain() && slot.part.count == 1;
    const int64_t chunk = in_pieces ? std::min(kFillChunk, elements) : elements;
    for (int64_t first = 0; first < elements; first += chunk) {
      values.resize(static_cast<size_t>(std::min(chunk, elements - first)));
      device_.run([&] {
        fill_slice(slot.initializer, slot.name, seed, slot.type.shape, slot.slice, values, first);
        if (chunk < elements) store(slot, seed, first, values, state_address(slot));
      });
    }
    if (chunk == elements) write_state(slot, values);
  }
}

std::byte* Session::state_address(const Slot& slot) const {
  return address(*programs_.front(), slot, slot.role == Role::parameter ? version_ : 0);
}

void Session::run(const Program& program, const StepState& step) {
  require(program);
  const Frame frame = {0, version_, version_};
  const auto work = [&] {
    run_phase(program, {Phase::forward, 0, program.instructions.size()}, frame, step);
  };
  device_.run(std::cref(work));  // a function of its own would be allocated
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

void Session::copy_in(const Program& program, const Slot& slot, int copy, const std::byte* values) {
  copy_between_layouts(plain_spec_of(slot), values, spec_of(slot), address(program, slot, copy));
}

void Session::copy_out(const Program& program, const Slot& slot, int copy,
                       std::byte* values) const {
  copy_between_layouts(spec_of(slot), address(program, slot, copy), plain_spec_of(slot), values);
}

void Session::write_slot(const Program& program, const Slot& slot, const std::byte* values) {
  const int copy = slot.role == Role::parameter ? version_ : 0;
  device_.run([&] { copy_in(program, slot, copy, values); });
}

void Session::read_slot(const Program& program, const Slot& slot, std::byte* values) const {
  const int copy = slot.role == Role::parameter ? version_ : 0;
  device_.run([&] { copy_out(program, slot, copy, values); });
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
  if (has_sixteen_bits(slot)) {
    const std::byte* tensor = state_address(slot);
    device_.run([&] { load_row(slot.type.dtype, tensor, slot.type.elements(), values.data()); });
    return;
  }
  read_slot(*programs_.front(), slot, reinterpret_cast<std::byte*>(values.data()));
}

void Session::read_part(const Slot& slot, std::span<float> values) const {
  if (static_cast<int64_t>(values.size_bytes()) != slot.bytes) {
    throw std::logic_error("wrong number of values for the part of '" + slot.name + "'");
  }
  std::memcpy(values.data(), address(*programs_.front(), slot), values.size_bytes());
}

std::span<std::byte> Session::state_bytes(const Slot& slot) const {
  if (!slot.layout.is_plain() || slot.part.count != 1) {
    throw std::logic_error("'" + slot.name + "' does not lie whole and in plain order");
  }
  return {state_address(slot),
          static_cast<size_t>(slot.type.elements() * size_of(slot.type.dtype))};
}

void Session::write_state(const Slot& slot, std::span<const float> values) {
  require_size(slot, values.size());
  if (has_sixteen_bits(slot)) {
    device_.run([&] { store(slot, 0, 0, values, state_address(slot)); });
    return;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  if (slot.part.count == 1) {
    write_slot(*programs_.front(), slot, bytes);
    return;
  }
  const int64_t count = slot.layout.physical_elements(slot.type.shape);
  std::vector<float> whole(static_cast<size_t>(count));
  copy_between_layouts(plain_spec_of(slot), bytes, spec_of(slot),
                       reinterpret_cast<std::byte*>(whole.data()));
  const int64_t begin = part_begin(count, slot.part.index, slot.part.count);
  std::memcpy(address(*programs_.front(), slot), whole.data() + begin,
              static_cast<size_t>(slot.bytes));
}

}  // namespace millrace
