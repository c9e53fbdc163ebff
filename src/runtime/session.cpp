#include "runtime/session.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>

#include "base/parts.h"
#include "kernels/head/storage.h"
#include "runtime/fill.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kFillChunk = int64_t{1} << 22;  // elements

kernels::TensorSpec spec_of(const compile::Slot& slot) { return {slot.type, slot.layout}; }

void require_size(const compile::Slot& slot, size_t count) {
  if (static_cast<int64_t>(count) != slot.type.elements()) {
    throw std::logic_error("wrong number of values for '" + slot.name + "'");
  }
}

int64_t largest_arena(const std::vector<const compile::Program*>& programs) {
  int64_t bytes = 0;
  for (const compile::Program* program : programs) bytes = std::max(bytes, program->arena_bytes);
  return bytes;
}

bool has_sixteen_bits(const compile::Slot& slot) {
  return slot.type.dtype == graph::DataType::f16 || slot.type.dtype == graph::DataType::bf16;
}

int64_t row_elements(const compile::Slot& slot) {
  return slot.type.shape.empty() ? 1 : slot.type.elements() / slot.type.shape[0];
}

}  // namespace

Session::Session(backend::Device& device, std::vector<const compile::Program*> programs)
    : device_(device),
      programs_(std::move(programs)),
      arena_(device.allocate(largest_arena(programs_))),
      stream_(device.make_stream(backend::StreamKind::direct)) {
  size_t most = 0;
  for (const compile::Program* program : programs_) {
    for (const compile::Instruction& instruction : program->instructions) {
      most = std::max({most, instruction.inputs.size(), instruction.outputs.size()});
    }
  }
  inputs_.resize(most);
  outputs_.resize(most);
  extents_.resize(2 * most + 1);
}

Session::~Session() = default;

void Session::require(const compile::Program& program) const {
  if (std::find(programs_.begin(), programs_.end(), &program) == programs_.end()) {
    throw std::logic_error("the program does not belong to this session");
  }
}

backend::DeviceAddress Session::address(const compile::Program& program,
                                        const compile::Address& address, int copy) const {
  if (address.region == compile::ArenaRegion::channels) return channels(program) + address.offset;
  return arena_->begin() + (program.memory.begin(address.region, copy) + address.offset);
}

backend::DeviceAddress Session::channels(const compile::Program& program) const {
  return arena_->begin() + (arena_->bytes() - program.memory.channels);
}

void Session::set_trace(TraceRecorder* trace, int device) {
  trace_ = trace;
  trace_device_ = device;
  labels_.clear();
  if (trace == nullptr) return;
  for (const compile::Program* program : programs_) {
    std::vector<TraceLabel>& labels = labels_.emplace_back();
    for (const compile::Instruction& one : program->instructions) {
      const bool beside = one.ticket >= 0 && one.kind != compile::InstructionKind::wait;
      labels.push_back({one.name, std::string(compile::name_of(one.kind)), one.layer,
                        one.exchanges() ? one.exchanged_bytes : one.bytes_touched, one.arithmetic,
                        beside});
    }
  }
  stream_->set_observer(this);
}

void Session::ran(const backend::CommandNote& note, int64_t begin, int64_t end) {
  trace_->add(trace_device_, *static_cast<const TraceLabel*>(note.subject), note.micro_batch, begin,
              end);
}

backend::CommandNote Session::note_of(const compile::Program& program,
                                      const compile::Instruction& instruction,
                                      const Frame& frame) const {
  if (trace_ == nullptr) return {};
  const auto place = std::find(programs_.begin(), programs_.end(), &program) - programs_.begin();
  const auto number = &instruction - program.instructions.data();
  return {&labels_[static_cast<size_t>(place)][static_cast<size_t>(number)], frame.micro_batch};
}

BoundOperands Session::bind(const compile::Program& program,
                            const compile::Instruction& instruction, const Frame& frame) {
  const bool update = instruction.phase == graph::Phase::update;
  const auto place = [&](const compile::Address& operand, int version) {
    int copy = 0;
    if (operand.region == compile::ArenaRegion::saved) copy = frame.slot;
    if (operand.region == compile::ArenaRegion::weights) copy = version;
    return address(program, operand, copy);
  };
  const int written = update ? frame.new_version : frame.version;
  const int read = instruction.copies_version() ? frame.newest_version : written;
  std::transform(instruction.inputs.begin(), instruction.inputs.end(), inputs_.begin(),
                 [&](const compile::Address& operand) { return place(operand, read); });
  std::transform(instruction.outputs.begin(), instruction.outputs.end(), outputs_.begin(),
                 [&](const compile::Address& operand) { return place(operand, written); });
  const auto extent_of = [](const compile::Address& operand) { return operand.extent; };
  auto end = std::transform(instruction.inputs.begin(), instruction.inputs.end(), extents_.begin(),
                            extent_of);
  end = std::transform(instruction.outputs.begin(), instruction.outputs.end(), end, extent_of);
  *end++ = instruction.workspace.extent;
  return {{inputs_.data(), instruction.inputs.size()},
          {outputs_.data(), instruction.outputs.size()},
          place(instruction.workspace, written),
          {extents_.begin(), end}};
}

backend::command::Launch Session::launch_of(kernels::Kernel& kernel,
                                            const compile::Instruction& instruction,
                                            const BoundOperands& operands,
                                            const kernels::StepState* step) {
  return {.kernel = &kernel,
          .inputs = operands.inputs,
          .outputs = operands.outputs,
          .workspace = operands.workspace,
          .step = step,
          .extents = operands.extents,
          .name = instruction.name};
}

void Session::launch(const compile::Program& program, const compile::Instruction& instruction,
                     const Frame& frame, const kernels::StepState& step) {
  const BoundOperands operands = bind(program, instruction, frame);
  if (instruction.kind == compile::InstructionKind::compute) {
    stream_->give(launch_of(*instruction.kernel, instruction, operands, &step),
                  note_of(program, instruction, frame));
  } else if (collectives_ == nullptr) {
    throw std::logic_error("a program for several devices runs without their collectives");
  } else {
    collectives_->run(instruction, operands, *stream_, note_of(program, instruction, frame));
  }
  if (instruction.watch == nullptr) return;
  // It looks at what was written; the rest may be gone behind an exchange that was waited for.
  for (size_t i = 0; i < instruction.inputs.size(); ++i) {
    if (!extents_[i].written) extents_[i].bytes = 0;
  }
  stream_->give(launch_of(*instruction.watch, instruction, operands, &step));
}

void Session::copy(const compile::Program& program, const compile::Instruction& instruction,
                   const Frame& frame) {
  const backend::CommandNote note = note_of(program, instruction, frame);
  const BoundOperands operands = bind(program, instruction, frame);
  if (instruction.copies_version()) {
    if (frame.newest_version < 0 || frame.newest_version == frame.new_version) return;
    stream_->give(backend::command::Copy{operands.inputs[0], operands.outputs[0],
                                         instruction.exchanged_bytes},
                  note);
    return;
  }
  const bool arrives = instruction.inputs[0].region == compile::ArenaRegion::channels;
  if (!arrives) channels_->reserve(instruction.channel, *stream_, frame.micro_batch);
  (arrives ? inputs_ : outputs_)[0] = channels_->buffer(instruction.channel);
  stream_->give(launch_of(*instruction.kernel, instruction, operands, nullptr), note);
  if (arrives) channels_->release(instruction.channel, *stream_);
}

void Session::run_one(const compile::Program& program, const compile::Instruction& instruction,
                      const Frame& frame, const kernels::StepState& step) {
  if (instruction.is_of_message()) {
    if (frame.micro_batch < 0 || !instruction.turn.has(frame.micro_batch)) return;
    if (channels_ == nullptr) throw std::logic_error("a stage runs without the others");
  }
  switch (instruction.kind) {
    case compile::InstructionKind::copy:
      return copy(program, instruction, frame);
    case compile::InstructionKind::send:
      return channels_->send(instruction.channel, *stream_);
    case compile::InstructionKind::receive:
      return channels_->receive(instruction.channel, *stream_, frame.micro_batch);
    default:
      return launch(program, instruction, frame, step);
  }
}

void Session::settle() {
  const compile::Program& program = *programs_.front();
  const Frame frame = {0, version_, version_};
  const kernels::StepState step;
  finish([&] {
    for (const compile::Instruction& instruction : program.instructions) {
      if (instruction.kind != compile::InstructionKind::compute) continue;
      backend::command::Launch launch =
          launch_of(*instruction.kernel, instruction, bind(program, instruction, frame), &step);
      launch.settles = true;
      stream_->give(launch);
    }
  });
}

void Session::run_task(const compile::Program& program, const compile::TaskRange& range,
                       const Frame& frame, const kernels::StepState& step) {
  for (size_t i = range.begin; i < range.end; ++i) {
    run_one(program, program.instructions[i], frame, step);
  }
}

void Session::copy_version(int from, int to) {
  if (from == to) return;
  const compile::MemoryMap& memory = programs_.front()->memory;
  stream_->give(backend::command::Copy{
      arena_->begin() + memory.begin(compile::ArenaRegion::weights, from),
      arena_->begin() + memory.begin(compile::ArenaRegion::weights, to), memory.weights});
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
  for (const compile::Slot& slot : state()) {
    if (slot.type.dtype == graph::DataType::s32) {  // counts of updates
      finish([&] {
        stream_->give(backend::command::Scale{state_address(slot), slot.bytes / 4, 0});
      });
      continue;
    }
    const int64_t elements = slot.type.elements();
    const bool in_pieces = slot.layout.is_plain() && slot.part.count == 1;
    const int64_t columns = row_elements(slot);
    const int64_t whole_rows = std::max(columns, kFillChunk / columns * columns);
    const int64_t chunk = in_pieces ? std::min(whole_rows, elements) : elements;
    for (int64_t first = 0; first < elements; first += chunk) {
      values.resize(static_cast<size_t>(std::min(chunk, elements - first)));
      device_.run([&] {
        fill_slice(slot.initializer, slot.name, seed, slot.type.shape, slot.slice, values, first);
      });
      if (chunk < elements) store(slot, first, values);
    }
    if (chunk == elements) write_state(slot, values);
  }
}

// Whole rows to a plain tensor, from element `first` on; what does not fit into 16 bits is rounded
// as the head rounds (kernels/head/storage.h), a row of a part as in the whole tensor.
void Session::store(const compile::Slot& slot, int64_t first, std::span<const float> values) {
  const backend::DeviceAddress to = state_address(slot) + first * graph::size_of(slot.type.dtype);
  if (!has_sixteen_bits(slot)) {
    finish([&] {
      stream_->give(
          backend::command::Write{values.data(), to, static_cast<int64_t>(values.size_bytes())});
    });
    return;
  }
  std::vector<std::byte> stored(values.size() *
                                static_cast<size_t>(graph::size_of(slot.type.dtype)));
  const int64_t columns = row_elements(slot);
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  const int64_t number = (slot.slice.axis == 0 ? slot.slice.begin : 0) + first / columns;
  finish([&] {
    for (int64_t row = 0; row < rows; ++row) {
      kernels::store_row(slot.type.dtype, values.data() + row * columns, columns,
                         kernels::rounding_key(0, -1, number + row, 0),
                         stored.data() + row * columns * graph::size_of(slot.type.dtype));
    }
    stream_->give(backend::command::Write{stored.data(), to, static_cast<int64_t>(stored.size())});
  });
}

backend::DeviceAddress Session::state_address(const compile::Slot& slot) const {
  return address(*programs_.front(), slot, slot.role == graph::Role::parameter ? version_ : 0);
}

void Session::run(const compile::Program& program, const kernels::StepState& step) {
  require(program);
  const Frame frame = {0, version_, version_};
  finish([&] {
    run_task(program, {parallel::Work::forward, 0, program.instructions.size()}, frame, step);
  });
}

std::vector<InstructionTime> Session::run_timed(const compile::Program& program,
                                                const kernels::StepState& step) {
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

void Session::copy_in(const compile::Program& program, const compile::Slot& slot, int copy,
                      const void* values, backend::Stream& stream) {
  const kernels::TensorSpec tensor = spec_of(slot);
  stream.give(backend::command::Write{values, address(program, slot, copy), 0, &tensor});
}

void Session::copy_out(const compile::Program& program, const compile::Slot& slot, int copy,
                       void* values, backend::Stream& stream) const {
  const kernels::TensorSpec tensor = spec_of(slot);
  stream.give(backend::command::Read{address(program, slot, copy), values, 0, &tensor});
}

void Session::write_slot(const compile::Program& program, const compile::Slot& slot,
                         const void* values) {
  const int copy = slot.role == graph::Role::parameter ? version_ : 0;
  finish([&] { copy_in(program, slot, copy, values, *stream_); });
}

void Session::read_slot(const compile::Program& program, const compile::Slot& slot,
                        void* values) const {
  const int copy = slot.role == graph::Role::parameter ? version_ : 0;
  finish([&] { copy_out(program, slot, copy, values, *stream_); });
}

void Session::write_input(const compile::Program& program, std::string_view name,
                          std::span<const float> values) {
  const compile::Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, values.data());
}

void Session::write_input(const compile::Program& program, std::string_view name,
                          std::span<const int32_t> values) {
  const compile::Slot& slot = program.input(name);
  require_size(slot, values.size());
  write_slot(program, slot, values.data());
}

std::vector<float> Session::result(const compile::Program& program, std::string_view name) const {
  const compile::Slot& slot = program.result(name);
  std::vector<float> values(static_cast<size_t>(slot.type.elements()));
  read_slot(program, slot, values.data());
  return values;
}

float Session::scalar(const compile::Program& program, std::string_view name) const {
  float value = 0;
  stream_->give(
      backend::command::Read{address(program, program.result(name)), &value, sizeof(value)});
  stream_->finish();
  return value;
}

const std::vector<compile::Slot>& Session::state() const { return programs_.front()->state; }

void Session::read_state(const compile::Slot& slot, std::span<float> values) const {
  require_size(slot, values.size());
  if (!has_sixteen_bits(slot)) return read_slot(*programs_.front(), slot, values.data());
  std::vector<std::byte> stored(values.size() *
                                static_cast<size_t>(graph::size_of(slot.type.dtype)));
  read_bytes(slot, 0, stored);
  device_.run([&] {
    kernels::load_row(slot.type.dtype, stored.data(), slot.type.elements(), values.data());
  });
}

void Session::read_part(const compile::Slot& slot, std::span<float> values) const {
  if (static_cast<int64_t>(values.size_bytes()) != slot.bytes) {
    throw std::logic_error("wrong number of values for the part of '" + slot.name + "'");
  }
  finish([&] {
    stream_->give(
        backend::command::Read{address(*programs_.front(), slot), values.data(), slot.bytes});
  });
}

backend::DeviceAddress Session::plain_address(const compile::Slot& slot, int64_t first,
                                              size_t bytes) const {
  const int64_t all = slot.type.elements() * graph::size_of(slot.type.dtype);
  if (!slot.layout.is_plain() || slot.part.count != 1 || first < 0 ||
      first + static_cast<int64_t>(bytes) > all) {
    throw std::logic_error("'" + slot.name + "' does not lie there whole and in plain order");
  }
  return state_address(slot) + first;
}

void Session::read_bytes(const compile::Slot& slot, int64_t first,
                         std::span<std::byte> bytes) const {
  const backend::DeviceAddress from = plain_address(slot, first, bytes.size());
  finish([&] {
    stream_->give(backend::command::Read{from, bytes.data(), static_cast<int64_t>(bytes.size())});
  });
}

void Session::write_bytes(const compile::Slot& slot, int64_t first,
                          std::span<const std::byte> bytes) {
  const backend::DeviceAddress to = plain_address(slot, first, bytes.size());
  finish([&] {
    stream_->give(backend::command::Write{bytes.data(), to, static_cast<int64_t>(bytes.size())});
  });
}

void Session::write_state(const compile::Slot& slot, std::span<const float> values) {
  require_size(slot, values.size());
  if (has_sixteen_bits(slot)) return store(slot, 0, values);
  if (slot.part.count == 1) return write_slot(*programs_.front(), slot, values.data());
  const int64_t count = slot.layout.physical_elements(slot.type.shape);
  std::vector<float> whole(static_cast<size_t>(count));
  kernels::copy_between_layouts({slot.type, graph::Layout()},
                                reinterpret_cast<const std::byte*>(values.data()), spec_of(slot),
                                reinterpret_cast<std::byte*>(whole.data()));
  const int64_t begin = part_begin(count, slot.part.index, slot.part.count);
  finish([&] {
    stream_->give(backend::command::Write{whole.data() + begin, address(*programs_.front(), slot),
                                          slot.bytes});
  });
}

}  // namespace millrace::runtime
