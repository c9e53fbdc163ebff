// One thing that a device does in a step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compile/memory_map.h"
#include "graph/graph.h"
#include "kernels/kernel.h"
#include "kernels/watch.h"
#include "parallel/channels.h"

namespace millrace::compile {

// compute runs a kernel. copy moves rows of a tensor into or out of a channel to another stage, or
// a parameter from one version to the next. send and receive are of a message in a channel; a
// receive begins as soon as the channel has room, and the instruction is where it is waited for.
// The collectives are between the devices of a stage; a wait is for one that goes on beside the
// instructions.
enum class InstructionKind : uint8_t {
  compute,
  copy,
  send,
  receive,
  all_reduce,
  reduce_scatter,
  all_gather,
  wait,
};

// What a collective moves, and how it is divided over the members.
//
// Its tensors are the instruction's outputs, into which the inputs are copied first where they lie
// elsewhere; of an instruction without outputs, its first input. Several tensors are summed by way
// of one buffer, the output behind them. With `in_workspace` the members' parts lie in the
// workspace, one behind the other, instead of in the whole tensor; with `in_place` a member's own
// part lies in its place in the whole.
struct Exchange {
  std::vector<int64_t> counts;  // elements of each tensor; of the whole one where parts are moved
  int64_t element_bytes = 4;
  int64_t block = 1;  // elements that stay together; parts are whole blocks
  graph::DataType wire = graph::DataType::f32;
  bool in_workspace = false;
  bool in_place = false;
};

std::string_view name_of(InstructionKind kind);

struct Instruction {
  std::string name;
  std::string type;   // of its operator
  std::string layer;  // of the network, as its forward operator or its parameter calls it
  std::string implementation;
  graph::Phase phase = graph::Phase::forward;
  InstructionKind kind = InstructionKind::compute;
  std::shared_ptr<kernels::Kernel> kernel;  // of compute, and of copies of rows
  std::shared_ptr<kernels::Kernel> watch;   // looks at what it wrote; may be null
  std::vector<Address> inputs;
  std::vector<Address> outputs;
  Address workspace;
  int64_t workspace_bytes = 0;
  bool keeps_workspace = false;  // that of the instruction before, with its contents
  std::vector<kernels::WrittenTensor> written;
  double arithmetic = 0;      // floating-point operations
  int64_t bytes_touched = 0;  // inputs and outputs

  // What is sent, exchanged or copied from version to version has so many bytes. A collective goes
  // on beside the instructions that follow where a ticket is given; a wait names the ticket it is
  // for.
  Exchange exchange;
  int64_t exchanged_bytes = 0;
  int64_t ticket = -1;

  // Index into Program::channels of a send, a receive or a copy of rows, whose operand in
  // ArenaRegion::channels is the message's place in the ring; and whether a micro-batch has it.
  int channel = -1;
  parallel::Turn turn;

  // Whether it has to do with other devices.
  bool exchanges() const {
    return kind != InstructionKind::compute && kind != InstructionKind::copy;
  }
  // Whether it is part of what goes to or comes from another stage.
  bool is_of_message() const { return channel >= 0; }
  bool copies_version() const { return kind == InstructionKind::copy && channel < 0; }
};

}  // namespace millrace::compile
