// A device's way to the devices that run the same program on their parts.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "comm/group.h"
#include "compile/instruction.h"
#include "runtime/trace.h"

namespace millrace::runtime {

// An instruction's operands in the device's memory.
struct BoundOperands {
  std::span<const backend::DeviceAddress> inputs;
  std::span<const backend::DeviceAddress> outputs;
  backend::DeviceAddress workspace;
  std::span<const kernels::Extent> extents;  // of all of them
};

// Owns a background stream for collectives with a ticket; the others are enqueued where the
// instructions around them are. The two have a communicator each, so neither waits for the other.
// Used by the device's thread.
class DeviceCollectives : private backend::StreamObserver {
 public:
  DeviceCollectives(backend::Device& device, comm::Group direct, comm::Group background);
  // With nobody: what is summed stays as it is, and nothing is done in the background.
  DeviceCollectives(backend::Device& device, int members, int member);

  // Enqueues a collective or a wait.
  void run(const compile::Instruction& instruction, const BoundOperands& operands,
           backend::Stream& compute, const backend::CommandNote& note);

  // Records the background's work and the waits for it; before anything is posted. Borrowed.
  void set_trace(TraceRecorder* trace, int device);

  comm::GroupStatistics direct_statistics() const { return direct_->statistics(); }
  comm::GroupStatistics background_statistics() const { return background_->statistics(); }

  // Seconds that the background spent at work, and those of them that waits stood still for.
  double background_seconds() const { return stream_ ? stream_->seconds_communicating() : 0; }
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  void exchange(const compile::Instruction& instruction, const BoundOperands& operands,
                backend::Stream& stream, backend::Communicator& communicator,
                const backend::CommandNote& note) const;
  void sum(const compile::Exchange& exchange, const BoundOperands& operands,
           backend::Stream& stream, backend::Communicator& communicator,
           const backend::CommandNote& note) const;
  void wait(const compile::Instruction& instruction, backend::Stream& compute);
  void ran(const backend::CommandNote& note, int64_t begin, int64_t end) override;

  std::unique_ptr<backend::Communicator> direct_;
  std::unique_ptr<backend::Communicator> background_;
  TraceRecorder* trace_ = nullptr;
  int trace_device_ = 0;
  std::vector<backend::Event> done_;  // by ticket
  double exposed_seconds_ = 0;
  std::unique_ptr<backend::Stream> stream_;  // last: it uses the communicators; null with nobody
};

}  // namespace millrace::runtime
