#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/parallel.h"
#include "base/random.h"
#include "kernels/head/storage.h"

namespace millrace {
namespace {

constexpr int64_t kFillGrain = 65536;
constexpr int64_t kFillChunk = int64_t{1} << 22;

TensorSpec spec_of(const Slot& slot) { return {slot.type, slot.layout}; }
TensorSpec plain_spec_of(const Slot& slot) { return {slot.type, Layout()}; }

void require_size(const Slot& slot, size_t count) {
  if (static_cast<int64_t>(count) != slot.type.elements()) {
    throw std::logic_error("wrong number of values for '" + slot.name + "'");
  }
}

// Elements [first, first + values.size()) of a tensor as its initializer has them.
void fill(const Slot& slot, uint64_t seed, int64_t first, std::span<float> values) {
  const Initializer& initializer = slot.initializer;
  const Random random(seed, hash_bytes(slot.name.data(), slot.name.size()));
  parallel_for(static_cast<int64_t>(values.size()), kFillGrain, [&](int64_t i) {
    const auto index = static_cast<uint64_t>(initializer.offset + first + i);
    float value = initializer.first;
    if (initializer.kind == Initializer::Kind::normal) {
      value += initializer.second * random.normal(index);
    } else if (initializer.kind == Initializer::Kind::uniform) {
      value += (initializer.second - initializer.first) * random.uniform(index);
    }
    values[static_cast<size_t>(i)] = value;
  });
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

// Pointers of every instruction, worked out once.
struct Session::Bound {
  struct Call {
    Kernel* kernel;
    std::vector<std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::byte* workspace;
  };
  const Program* program;
  std::vector<Call> calls;

  Bound(const Program& source, std::byte* arena) : program(&source) {
    const auto pointers = [&](const std::vector<int64_t>& offsets) {
      std::vector<std::byte*> list;
      for (int64_t offset : offsets) list.push_back(arena + offset);
      return list;
    };
    for (const Instruction& instruction : source.instructions) {
      calls.push_back({instruction.kernel.get(), pointers(instruction.inputs),
                       pointers(instruction.outputs), arena + instruction.workspace});
    }
  }

  static void run(const Call& call, const StepState& step) {
    call.kernel->run({call.inputs, call.outputs, call.workspace, &step});
  }
};

Session::Session(Device& device, std::vector<const Program*> programs)
    : device_(device), programs_(std::move(programs)) {
  int64_t bytes = 0;
  for (const Program* program : programs_) bytes = std::max(bytes, program->arena_bytes);
  device_.allocate(bytes);
  for (const Program* program : programs_) bound_.emplace_back(*program, device_.arena());
}

Session::~Session() = default;

const Session::Bound& Session::bound(const Program& program) const {
  for (const Bound& candidate : bound_) {
    if (candidate.program == &program) return candidate;
  }
  throw std::logic_error("the program does not belong to this session");
}

void Session::initialize(uint64_t seed) {
  std::vector<float> values;
  for (const Slot& slot : state()) {
    const int64_t elements = slot.type.elements();
    const int64_t chunk = slot.layout.is_plain() ? std::min(kFillChunk, elements) : elements;
    for (int64_t first = 0; first < elements; first += chunk) {
      values.resize(static_cast<size_t>(std::min(chunk, elements - first)));
      device_.run([&] {
        fill(slot, seed, first, values);
        if (chunk < elements) store(slot, seed, first, values, device_.arena() + slot.offset);
      });
    }
    if (chunk == elements) write_state(slot, values);
  }
}

void Session::run(const Program& program, const StepState& step) {
  const Bound& target = bound(program);
  device_.run([&] {
    for (const Bound::Call& call : target.calls) Bound::run(call, step);
  });
}

std::vector<InstructionTime> Session::run_timed(const Program& program, const StepState& step) {
  const Bound& target = bound(program);
  std::vector<InstructionTime> times(target.calls.size());
  device_.run([&] {
    for (size_t i = 0; i < target.calls.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      Bound::run(target.calls[i], step);
      const auto end = std::chrono::steady_clock::now();
      times[i] = {&program.instructions[i], std::chrono::duration<double>(end - start).count()};
    }
  });
  return times;
}

void Session::write_slot(const Slot& slot, const std::byte* values) {
  std::byte* target = device_.arena() + slot.offset;
  device_.run([&] { copy_between_layouts(plain_spec_of(slot), values, spec_of(slot), target); });
}

void Session::read_slot(const Slot& slot, std::byte* values) const {
  const std::byte* source = device_.arena() + slot.offset;
  device_.run([&] { copy_between_layouts(spec_of(slot), source, plain_spec_of(slot), values); });
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const float> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(slot, reinterpret_cast<const std::byte*>(values.data()));
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const int32_t> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(slot, reinterpret_cast<const std::byte*>(values.data()));
}

std::vector<float> Session::result(const Program& program, std::string_view name) const {
  const Slot& slot = program.result(name);
  std::vector<float> values(static_cast<size_t>(slot.type.elements()));
  read_slot(slot, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

float Session::scalar(const Program& program, std::string_view name) const {
  return *reinterpret_cast<const float*>(device_.arena() + program.result(name).offset);
}

const std::vector<Slot>& Session::state() const { return programs_.front()->state; }

void Session::read_state(const Slot& slot, std::span<float> values) const {
  require_size(slot, values.size());
  if (has_sixteen_bits(slot)) {
    const std::byte* tensor = device_.arena() + slot.offset;
    device_.run([&] { load_row(slot.type.dtype, tensor, slot.type.elements(), values.data()); });
    return;
  }
  read_slot(slot, reinterpret_cast<std::byte*>(values.data()));
}

void Session::write_state(const Slot& slot, std::span<const float> values) {
  require_size(slot, values.size());
  if (has_sixteen_bits(slot)) {
    device_.run([&] { store(slot, 0, 0, values, device_.arena() + slot.offset); });
    return;
  }
  write_slot(slot, reinterpret_cast<const std::byte*>(values.data()));
}

}  // namespace millrace
