// What a stream can be told to do, as plain data.
//
// A command names kernels, communicators, bells and host memory, which must stay until it has run.
// Everything else it points to (lists of operands, step values, shapes) is read when the command is
// given.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "backend/address.h"
#include "backend/communicator.h"
#include "backend/event.h"
#include "base/bell.h"
#include "kernels/kernel.h"

namespace millrace::backend {
namespace command {

struct Launch {
  kernels::Kernel* kernel = nullptr;
  std::span<const DeviceAddress> inputs = {};
  std::span<const DeviceAddress> outputs = {};
  DeviceAddress workspace = {};
  const kernels::StepState* step = nullptr;  // may be null for kernels that do not look
  bool settles = false;                      // Kernel::settle instead of Kernel::run
  // For backends that check, of the inputs, the outputs and the workspace; may be empty.
  std::span<const kernels::Extent> extents = {};
  std::string_view name = {};
};

struct Copy {
  DeviceAddress from, to;
  int64_t bytes = 0;
};

// Between the device and host memory: bytes as they are, or with `tensor`, from or to its layout
// and the plain one, and `bytes` is not used.
struct Read {
  DeviceAddress from;
  void* to = nullptr;
  int64_t bytes = 0;
  const kernels::TensorSpec* tensor = nullptr;
};
struct Write {
  const void* from = nullptr;
  DeviceAddress to;
  int64_t bytes = 0;
  const kernels::TensorSpec* tensor = nullptr;
};

// Multiplies floats; by 0 it clears them, whatever they are.
struct Scale {
  DeviceAddress values;
  int64_t count = 0;
  float factor = 0;
};

struct AllReduce {
  Communicator* communicator = nullptr;
  DeviceAddress values;
  int64_t count = 0;
  graph::DataType wire = graph::DataType::f32;
};

// `part` has this member's blocks of `count` values in blocks of `block`; it may lie in its place
// within `whole`.
struct ReduceScatter {
  Communicator* communicator = nullptr;
  DeviceAddress whole, part;
  int64_t count = 0;
  int64_t block = 1;
  graph::DataType wire = graph::DataType::f32;
};
struct AllGather {
  Communicator* communicator = nullptr;
  DeviceAddress part, whole;
  int64_t bytes = 0;  // of the whole
  int64_t block_bytes = 1;
};

struct Send {
  Communicator* communicator = nullptr;
  int to = 0;
  DeviceAddress data;
  int64_t bytes = 0;
  int tag = 0;
};
struct Receive {
  Communicator* communicator = nullptr;
  int from = 0;
  DeviceAddress data;
  int64_t bytes = 0;
  int tag = 0;
};

struct Ring {
  Bell* bell = nullptr;
};

// What follows in the stream runs after the event.
struct Await {
  Event event;
};

}  // namespace command

using Command =
    std::variant<command::Launch, command::Copy, command::Read, command::Write, command::Scale,
                 command::AllReduce, command::ReduceScatter, command::AllGather, command::Send,
                 command::Receive, command::Ring, command::Await>;

// Whether it may have to wait for other devices.
bool communicates(const Command& command);

// Rings the bell of a Ring: those that wait for it have to learn of a failure.
void ring_if_asked(const Command& command);

// Keeps a command and what it points to, for a queue.
class KeptCommand {
 public:
  explicit KeptCommand(const Command& command);
  KeptCommand(const KeptCommand&) = delete;
  KeptCommand& operator=(const KeptCommand&) = delete;

  const Command& get() const { return command_; }

 private:
  Command command_;
  std::vector<DeviceAddress> operands_;
  kernels::StepState step_;
  kernels::TensorSpec tensor_;
};

// Runs commands on memory that this processor reaches `distance` bytes behind their addresses, with
// the calling thread's team. Used by one thread at a time; allocates nothing once it has seen the
// longest list of operands.
class CommandRunner {
 public:
  explicit CommandRunner(int64_t distance = 0) : distance_(distance) {}

  // An Await waits in the calling thread.
  void run(const Command& command);

 private:
  void run_one(const command::Launch& launch);
  void run_one(const command::Copy& copy) const;
  void run_one(const command::Read& read) const;
  void run_one(const command::Write& write) const;
  void run_one(const command::Scale& scale) const;
  void run_one(const command::AllReduce& sum) const;
  void run_one(const command::ReduceScatter& sum) const;
  void run_one(const command::AllGather& gather) const;
  void run_one(const command::Send& send) const;
  void run_one(const command::Receive& receive) const;
  void run_one(const command::Ring& ring) const;
  void run_one(const command::Await& await) const;

  std::byte* open(DeviceAddress address) const;
  float* open_floats(DeviceAddress address) const;

  const int64_t distance_;
  std::vector<std::byte*> inputs_;  // of the launch that runs now
  std::vector<std::byte*> outputs_;
};

}  // namespace millrace::backend
