#include "backend/command.h"

#include <cstring>

#include "backend/raw.h"
#include "base/parallel.h"
#include "base/parts.h"

namespace millrace::backend {
namespace {

constexpr int64_t kCopyGrain = int64_t{1} << 18;   // bytes
constexpr int64_t kScaleGrain = int64_t{1} << 16;  // elements

void copy_bytes(const std::byte* from, std::byte* to, int64_t bytes) {
  if (from == to) return;
  parallel_ranges(bytes, kCopyGrain, [=](int, int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

kernels::TensorSpec plain(const kernels::TensorSpec& tensor) {
  return {tensor.type, graph::Layout()};
}

}  // namespace

bool communicates(const Command& command) {
  return std::visit(
      [](const auto& one) {
        using One = std::decay_t<decltype(one)>;
        return std::is_same_v<One, command::AllReduce> ||
               std::is_same_v<One, command::ReduceScatter> ||
               std::is_same_v<One, command::AllGather> || std::is_same_v<One, command::Send> ||
               std::is_same_v<One, command::Receive>;
      },
      command);
}

void ring_if_asked(const Command& command) {
  if (const auto* ring = std::get_if<command::Ring>(&command)) ring->bell->ring();
}

KeptCommand::KeptCommand(const Command& command) : command_(command) {
  if (auto* launch = std::get_if<command::Launch>(&command_)) {
    operands_.assign(launch->inputs.begin(), launch->inputs.end());
    operands_.insert(operands_.end(), launch->outputs.begin(), launch->outputs.end());
    const std::span<const DeviceAddress> all(operands_);
    launch->outputs = all.subspan(launch->inputs.size());
    launch->inputs = all.first(launch->inputs.size());
    if (launch->step == nullptr) return;
    step_ = *launch->step;
    launch->step = &step_;
  } else if (auto* read = std::get_if<command::Read>(&command_); read && read->tensor) {
    tensor_ = *read->tensor;
    read->tensor = &tensor_;
  } else if (auto* write = std::get_if<command::Write>(&command_); write && write->tensor) {
    tensor_ = *write->tensor;
    write->tensor = &tensor_;
  }
}

std::byte* CommandRunner::open(DeviceAddress address) const { return raw(address, distance_); }

float* CommandRunner::open_floats(DeviceAddress address) const {
  return reinterpret_cast<float*>(open(address));
}

void CommandRunner::run(const Command& command) {
  std::visit([this](const auto& one) { run_one(one); }, command);
}

void CommandRunner::run_one(const command::Launch& launch) {
  if (inputs_.size() < launch.inputs.size()) inputs_.resize(launch.inputs.size());
  if (outputs_.size() < launch.outputs.size()) outputs_.resize(launch.outputs.size());
  for (size_t i = 0; i < launch.inputs.size(); ++i) inputs_[i] = open(launch.inputs[i]);
  for (size_t i = 0; i < launch.outputs.size(); ++i) outputs_[i] = open(launch.outputs[i]);
  const kernels::KernelArguments arguments = {{inputs_.data(), launch.inputs.size()},
                                              {outputs_.data(), launch.outputs.size()},
                                              open(launch.workspace),
                                              launch.step};
  launch.settles ? launch.kernel->settle(arguments) : launch.kernel->run(arguments);
}

void CommandRunner::run_one(const command::Copy& copy) const {
  copy_bytes(open(copy.from), open(copy.to), copy.bytes);
}

void CommandRunner::run_one(const command::Read& read) const {
  auto* to = static_cast<std::byte*>(read.to);
  if (read.tensor == nullptr) return copy_bytes(open(read.from), to, read.bytes);
  kernels::copy_between_layouts(*read.tensor, open(read.from), plain(*read.tensor), to);
}

void CommandRunner::run_one(const command::Write& write) const {
  const auto* from = static_cast<const std::byte*>(write.from);
  if (write.tensor == nullptr) return copy_bytes(from, open(write.to), write.bytes);
  kernels::copy_between_layouts(plain(*write.tensor), from, *write.tensor, open(write.to));
}

void CommandRunner::run_one(const command::Scale& scale) const {
  float* values = open_floats(scale.values);
  const float factor = scale.factor;
  parallel_ranges(scale.count, kScaleGrain, [=](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = factor == 0 ? 0 : factor * values[i];
  });
}

void CommandRunner::run_one(const command::AllReduce& sum) const {
  sum.communicator->all_reduce({open_floats(sum.values), static_cast<size_t>(sum.count)}, sum.wire);
}

void CommandRunner::run_one(const command::ReduceScatter& sum) const {
  Communicator& others = *sum.communicator;
  const int64_t part =
      part_size(sum.count / sum.block, others.member(), others.members()) * sum.block;
  others.reduce_scatter({open_floats(sum.whole), static_cast<size_t>(sum.count)},
                        {open_floats(sum.part), static_cast<size_t>(part)}, sum.block, sum.wire);
}

void CommandRunner::run_one(const command::AllGather& gather) const {
  Communicator& others = *gather.communicator;
  const int64_t part =
      part_size(gather.bytes / gather.block_bytes, others.member(), others.members()) *
      gather.block_bytes;
  others.all_gather({open(gather.part), static_cast<size_t>(part)},
                    {open(gather.whole), static_cast<size_t>(gather.bytes)}, gather.block_bytes);
}

void CommandRunner::run_one(const command::Send& send) const {
  send.communicator->send(send.to, {open(send.data), static_cast<size_t>(send.bytes)}, send.tag);
}

void CommandRunner::run_one(const command::Receive& receive) const {
  receive.communicator->receive(
      receive.from, {open(receive.data), static_cast<size_t>(receive.bytes)}, receive.tag);
}

void CommandRunner::run_one(const command::Ring& ring) const { ring.bell->ring(); }

void CommandRunner::run_one(const command::Await& await) const { await.event.wait(); }

}  // namespace millrace::backend
