#include "runtime/device_collectives.h"

#include <algorithm>

#include "base/parts.h"

namespace millrace::runtime {
namespace {

constexpr std::string_view kTraceName = "gradients";

// Inputs whose place is taken by an output somewhere else.
void copy_inputs(const compile::Exchange& exchange, const BoundOperands& operands,
                 backend::Stream& stream) {
  const size_t outputs = std::min(exchange.counts.size(), operands.outputs.size());
  for (size_t i = 0; i < outputs; ++i) {
    if (operands.inputs[i] == operands.outputs[i]) continue;
    stream.give(backend::command::Copy{operands.inputs[i], operands.outputs[i],
                                       exchange.counts[i] * exchange.element_bytes});
  }
}

// Where this member's part of a whole tensor begins.
backend::DeviceAddress own_part(backend::DeviceAddress whole, const compile::Exchange& exchange,
                                const backend::Communicator& communicator) {
  const int64_t begin = part_begin(exchange.counts[0] / exchange.block, communicator.member(),
                                   communicator.members());
  return whole + begin * exchange.block * exchange.element_bytes;
}

}  // namespace

DeviceCollectives::DeviceCollectives(backend::Device& device, comm::Group direct,
                                     comm::Group background)
    : direct_(backend::join(std::move(direct))),
      background_(backend::join(std::move(background))),
      stream_(device.make_stream(backend::StreamKind::background, 1)) {}

DeviceCollectives::DeviceCollectives(backend::Device&, int members, int member)
    : direct_(backend::join_nobody(members, member)),
      background_(backend::join_nobody(members, member)) {}

void DeviceCollectives::set_trace(TraceRecorder* trace, int device) {
  trace_ = trace;
  trace_device_ = device;
  if (stream_) stream_->set_observer(trace == nullptr ? nullptr : this);
}

void DeviceCollectives::ran(const backend::CommandNote& note, int64_t begin, int64_t end) {
  trace_->add(trace_device_, TraceCategory::communication, kTraceName, -1, begin, end);
  trace_->add(trace_device_, *static_cast<const TraceLabel*>(note.subject), note.micro_batch, begin,
              end);
}

void DeviceCollectives::run(const compile::Instruction& instruction, const BoundOperands& operands,
                            backend::Stream& compute, const backend::CommandNote& note) {
  if (instruction.kind == compile::InstructionKind::wait) {
    wait(instruction, compute);
    copy_inputs(instruction.exchange, operands, compute);
    return;
  }
  const bool moves_parts = instruction.kind != compile::InstructionKind::all_reduce;
  if (!moves_parts || instruction.exchange.in_place) {
    copy_inputs(instruction.exchange, operands, compute);
  }
  if (instruction.ticket < 0) {
    exchange(instruction, operands, compute, *direct_, note);
    return;
  }
  if (!stream_) return;
  const auto ticket = static_cast<size_t>(instruction.ticket);
  if (done_.size() <= ticket) done_.resize(ticket + 1);
  stream_->await(compute.record());
  exchange(instruction, operands, *stream_, *background_, note);
  done_[ticket] = stream_->record();
}

void DeviceCollectives::wait(const compile::Instruction& instruction, backend::Stream& compute) {
  if (!stream_) return;
  const int64_t begin = trace_now();
  const TraceScope scope(trace_, trace_device_, TraceCategory::wait, kTraceName);
  compute.await(done_.at(static_cast<size_t>(instruction.ticket)));
  exposed_seconds_ += static_cast<double>(trace_now() - begin) * 1e-9;
}

void DeviceCollectives::exchange(const compile::Instruction& instruction,
                                 const BoundOperands& operands, backend::Stream& stream,
                                 backend::Communicator& communicator,
                                 const backend::CommandNote& note) const {
  const compile::Exchange& what = instruction.exchange;
  if (instruction.kind == compile::InstructionKind::all_reduce) {
    sum(what, operands, stream, communicator, note);
    return;
  }
  const bool scatters = instruction.kind == compile::InstructionKind::reduce_scatter;
  const backend::DeviceAddress in = operands.inputs[0];
  const backend::DeviceAddress out = operands.outputs.empty() ? in : operands.outputs[0];
  backend::DeviceAddress whole = scatters ? in : out;
  backend::DeviceAddress part = scatters ? out : in;
  if (what.in_workspace) whole = operands.workspace;
  if (what.in_place) {
    whole = out;
    part = own_part(out, what, communicator);
  }
  if (scatters) {
    stream.give(backend::command::ReduceScatter{&communicator, whole, part, what.counts[0],
                                                what.block, what.wire},
                note);
  } else {
    stream.give(
        backend::command::AllGather{&communicator, part, whole, what.counts[0] * what.element_bytes,
                                    what.block * what.element_bytes},
        note);
  }
}

void DeviceCollectives::sum(const compile::Exchange& exchange, const BoundOperands& operands,
                            backend::Stream& stream, backend::Communicator& communicator,
                            const backend::CommandNote& note) const {
  const std::span<const backend::DeviceAddress> tensors =
      operands.outputs.empty() ? operands.inputs : operands.outputs;
  const size_t count = exchange.counts.size();
  if (tensors.size() <= count || operands.outputs.empty()) {
    stream.give(
        backend::command::AllReduce{&communicator, tensors[0], exchange.counts[0], exchange.wire},
        note);
    return;
  }
  const backend::DeviceAddress staging = tensors[count];
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t bytes = exchange.counts[i] * exchange.element_bytes;
    stream.give(
        backend::command::Copy{tensors[i], staging + total * exchange.element_bytes, bytes});
    total += exchange.counts[i];
  }
  stream.give(backend::command::AllReduce{&communicator, staging, total, exchange.wire}, note);
  total = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t bytes = exchange.counts[i] * exchange.element_bytes;
    stream.give(
        backend::command::Copy{staging + total * exchange.element_bytes, tensors[i], bytes});
    total += exchange.counts[i];
  }
}

}  // namespace millrace::runtime
