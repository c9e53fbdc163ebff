#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <stdexcept>

#include "base/parts.h"
#include "kernels/head/storage.h"
#include "runtime/fill.h"

namespace millrace {
namespace {

constexpr int64_t kFillChunk = int64_t{1} << 22;  // elements

TensorSpec spec_of(const Slot& slot) { return {slot.type, slot.layout}; }

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

bool has_sixteen_bits(const Slot& slot) {
  return slot.type.dtype == DataType::f16 || slot.type.dtype == DataType::bf16;
}

}  // namespace

Session::Session(Device& device, std::vector<const Program*> programs)
    : device_(device),
      programs_(std::move(programs)),
      arena_(device.allocate(largest_arena(programs_))),
      stream_(device.make_stream(StreamKind::direct)) {
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

DeviceAddress Session::address(const Program& program, const Slot& slot, int copy) const {
  return arena_->begin() + (program.memory.begin(slot.address.region, copy) + slot.address.offset);
}

DeviceAddress Session::channels() const {
  return arena_->begin() + (arena_->bytes() - programs_.front()->memory.channels);
}

void Session::set_trace(TraceRecorder* trace, int device) {
  trace_ = trace;
  trace_device_ = device;
  labels_.clear();
  if (trace == nullptr) return;
  for (const Program* program : programs_) {
    std::vector<TraceLabel>& labels = labels_.emplace_back();
    for (const Instruction& one : program->instructions) {
      const bool beside = one.ticket >= 0 && one.kind != InstructionKind::wait;
      labels.push_back({one.name, std::string(name_of(one.kind)), one.layer,
                        one.exchanges() ? one.exchanged_bytes : one.bytes_touched, one.arithmetic,
                        beside});
    }
  }
  stream_->set_observer(this);
}

void Session::ran(const CommandNote& note, int64_t begin, int64_t end) {
  trace_->add(trace_device_, *static_cast<const TraceLabel*>(note.subject), note.micro_batch, begin,
              end);
}

CommandNote Session::note_of(const Program& program, const Instruction& instruction,
                             const Frame& frame) const {
  if (trace_ == nullptr) return {};
  const auto place = std::find(programs_.begin(), programs_.end(), &program) - programs_.begin();
  const auto number = &instruction - program.instructions.data();
  return {&labels_[static_cast<size_t>(place)][static_cast<size_t>(number)], frame.micro_batch};
}

BoundOperands Session::bind(const Program& program, const Instruction& instruction,
                            const Frame& frame) {
  const bool update = instruction.phase == Phase::update;
  const auto place = [&](const Address& address) {
    int copy = 0;
    if (address.region == ArenaRegion::saved) copy = frame.slot;
    if (address.region == ArenaRegion::weights) copy = update ? frame.new_version : frame.version;
    return arena_->begin() + (program.memory.begin(address.region, copy) + address.offset);
  };
  std::transform(instruction.inputs.begin(), instruction.inputs.end(), inputs_.begin(), place);
  std::transform(instruction.outputs.begin(), instruction.outputs.end(), outputs_.begin(), place);
  return {{inputs_.data(), instruction.inputs.size()},
          {outputs_.data(), instruction.outputs.size()},
          place(instruction.workspace)};
}

void Session::run_one(const Program& program, const Instruction& instruction, const Frame& frame,
                      const StepState& step) {
  const BoundOperands operands = bind(program, instruction, frame);
  if (instruction.kind == InstructionKind::compute) {
    stream_->give(command::Launch{instruction.kernel.get(), operands.inputs, operands.outputs,
                                  operands.workspace, &step},
                  note_of(program, instruction, frame));
  } else if (collectives_ == nullptr) {
    throw std::logic_error("a program for several devices runs without their collectives");
  } else {
    collectives_->run(instruction, operands, *stream_, note_of(program, instruction, frame));
  }
  if (instruction.watch == nullptr) return;
  stream_->give(command::Launch{instruction.watch.get(), operands.inputs, operands.outputs,
                                operands.workspace, &step});
}

void Session::settle() {
  const Program& program = *programs_.front();
  const Frame frame = {0, version_, version_};
  const StepState step;
  finish([&] {
    for (const Instruction& instruction : program.instructions) {
      if (!instruction.kernel) continue;
      const BoundOperands operands = bind(program, instruction, frame);
      stream_->give(command::Launch{instruction.kernel.get(), operands.inputs, operands.outputs,
                                    operands.workspace, &step, /*settles=*/true});
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
    stream_->give(command::Copy{address(program, *slot, frame.newest_version),
                                address(program, *slot, frame.new_version), slot->bytes});
  }
}

void Session::copy_version(int from, int to) {
  if (from == to) return;
  const MemoryMap& memory = programs_.front()->memory;
  stream_->give(command::Copy{arena_->begin() + memory.begin(ArenaRegion::weights, from),
                              arena_->begin() + memory.begin(ArenaRegion::weights, to),
                              memory.weights});
}

template <typename Enqueue>
void Session::finish(Enqueue&& enqueue) const {
  const auto work = [&] {
    enqueue();
    stream_->finish();
  };
  device_.run(std::cref(work));  // a function of its own would be allocated
}

// Piece by piece where storage is plain, so that a large tensor needs no copy beside it.
void Session::initialize(uint64_t seed) {
  std::vector<float> values;
  for (const Slot& slot : state()) {
    if (slot.type.dtype == DataType::s32) {  // counts of updates
      finish([&] { stream_->give(command::Scale{state_address(slot), slot.bytes / 4, 0}); });
      continue;
    }
    const int64_t elements = slot.type.elements();
    const bool in_pieces = slot.layout.is_plain() && slot.part.count == 1;
    const int64_t chunk = in_pieces ? std::min(kFillChunk, elements) : elements;
    for (int64_t first = 0; first < elements; first += chunk) {
      values.resize(static_cast<size_t>(std::min(chunk, elements - first)));
      device_.run([&] {
        fill_slice(slot.initializer, slot.name, seed, slot.type.shape, slot.slice, values, first);
      });
      if (chunk < elements) store(slot, seed, first, values);
    }
    if (chunk == elements) write_state(slot, values);
  }
}

// Values to a plain tensor, from element `first` on; what does not fit into 16 bits is rounded
// as the head rounds (kernels/head/storage.h).
void Session::store(const Slot& slot, uint64_t seed, int64_t first, std::span<const float> values) {
  const DeviceAddress to = state_address(slot) + first * size_of(slot.type.dtype);
  if (!has_sixteen_bits(slot)) {
    finish([&] {
      stream_->give(command::Write{values.data(), to, static_cast<int64_t>(values.size_bytes())});
    });
    return;
  }
  std::vector<std::byte> stored(values.size() * static_cast<size_t>(size_of(slot.type.dtype)));
  finish([&] {
    store_row(slot.type.dtype, values.data(), static_cast<int64_t>(values.size()),
              rounding_key(seed, -1, first, 0), stored.data());
    stream_->give(command::Write{stored.data(), to, static_cast<int64_t>(stored.size())});
  });
}

DeviceAddress Session::state_address(const Slot& slot) const {
  return address(*programs_.front(), slot, slot.role == Role::parameter ? version_ : 0);
}

void Session::run(const Program& program, const StepState& step) {
  require(program);
  const Frame frame = {0, version_, version_};
  finish([&] {
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
      stream_->finish();
      const auto end = std::chrono::steady_clock::now();
      times[i] = {&program.instructions[i], std::chrono::duration<double>(end - start).count()};
    }
  });
  return times;
}

void Session::copy_in(const Program& program, const Slot& slot, int copy, const void* values,
                      Stream& stream) {
  const TensorSpec tensor = spec_of(slot);
  stream.give(command::Write{values, address(program, slot, copy), 0, &tensor});
}

void Session::copy_out(const Program& program, const Slot& slot, int copy, void* values,
                       Stream& stream) const {
  const TensorSpec tensor = spec_of(slot);
  stream.give(command::Read{address(program, slot, copy), values, 0, &tensor});
}

void Session::write_slot(const Program& program, const Slot& slot, const void* values) {
  const int copy = slot.role == Role::parameter ? version_ : 0;
  finish([&] { copy_in(program, slot, copy, values, *stream_); });
}

void Session::read_slot(const Program& program, const Slot& slot, void* values) const {
  const int copy = slot.role == Role::parameter ? version_ : 0;
  finish([&] { copy_out(program, slot, copy, values, *stream_); });
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const float> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, values.data());
}

void Session::write_input(const Program& program, std::string_view name,
                          std::span<const int32_t> values) {
  const Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, values.data());
}

std::vector<float> Session::result(const Program& program, std::string_view name) const {
  const Slot& slot = program.result(name);
  std::vector<float> values(static_cast<size_t>(slot.type.elements()));
  read_slot(program, slot, values.data());
  return values;
}

float Session::scalar(const Program& program, std::string_view name) const {
  float value = 0;
  stream_->give(command::Read{address(program, program.result(name)), &value, sizeof(value)});
  stream_->finish();
  return value;
}

const std::vector<Slot>& Session::state() const { return programs_.front()->state; }

void Session::read_state(const Slot& slot, std::span<float> values) const {
  require_size(slot, values.size());
  if (!has_sixteen_bits(slot)) return read_slot(*programs_.front(), slot, values.data());
  std::vector<std::byte> stored(values.size() * static_cast<size_t>(size_of(slot.type.dtype)));
  read_bytes(slot, 0, stored);
  device_.run(
      [&] { load_row(slot.type.dtype, stored.data(), slot.type.elements(), values.data()); });
}

void Session::read_part(const Slot& slot, std::span<float> values) const {
  if (static_cast<int64_t>(values.size_bytes()) != slot.bytes) {
    throw std::logic_error("wrong number of values for the part of '" + slot.name + "'");
  }
  finish([&] {
    stream_->give(command::Read{address(*programs_.front(), slot), values.data(), slot.bytes});
  });
}

DeviceAddress Session::plain_address(const Slot& slot, int64_t first, size_t bytes) const {
  const int64_t all = slot.type.elements() * size_of(slot.type.dtype);
  if (!slot.layout.is_plain() || slot.part.count != 1 || first < 0 ||
      first + static_cast<int64_t>(bytes) > all) {
    throw std::logic_error("'" + slot.name + "' does not lie there whole and in plain order");
  }
  return state_address(slot) + first;
}

void Session::read_bytes(const Slot& slot, int64_t first, std::span<std::byte> bytes) const {
  const DeviceAddress from = plain_address(slot, first, bytes.size());
  finish([&] {
    stream_->give(command::Read{from, bytes.data(), static_cast<int64_t>(bytes.size())});
  });
}

void Session::write_bytes(const Slot& slot, int64_t first, std::span<const std::byte> bytes) {
  const DeviceAddress to = plain_address(slot, first, bytes.size());
  finish([&] {
    stream_->give(command::Write{bytes.data(), to, static_cast<int64_t>(bytes.size())});
  });
}

void Session::write_state(const Slot& slot, std::span<const float> values) {
  require_size(slot, values.size());
  if (has_sixteen_bits(slot)) return store(slot, 0, 0, values);
  if (slot.part.count == 1) return write_slot(*programs_.front(), slot, values.data());
  const int64_t count = slot.layout.physical_elements(slot.type.shape);
  std::vector<float> whole(static_cast<size_t>(count));
  copy_between_layouts({slot.type, Layout()}, reinterpret_cast<const std::byte*>(values.data()),
                       spec_of(slot), reinterpret_cast<std::byte*>(whole.data()));
  const int64_t begin = part_begin(count, slot.part.index, slot.part.count);
  finish([&] {
    stream_->give(
        command::Write{whole.data() + begin, address(*programs_.front(), slot), slot.bytes});
  });
}

}  // namespace millrace
