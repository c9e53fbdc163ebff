// A device's way to the devices that run the same program on their parts.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/device.h"
#include "comm/group.h"
#include "compile/instruction.h"
#include "runtime/trace.h"

namespace millrace {

// An instruction's operands in the device's memory.
struct BoundOperands {
  std::span<const DeviceAddress> inputs;
  std::span<const DeviceAddress> outputs;
  DeviceAddress workspace;
};

// Owns a background stream for collectives with a ticket; the others are enqueued where the
// instructions around them are. The two have a communicator each, so neither waits for the other.
// Used by the device's thread.
class DeviceCollectives : private StreamObserver {
 public:
  DeviceCollectives(Device& device, Group direct, Group background);
  // With nobody: what is summed stays as it is, and nothing is done in the background.
  DeviceCollectives(Device& device, int members, int member);

  // Enqueues a collective or a wait.
  void run(const Instruction& instruction, const BoundOperands& operands, Stream& compute,
           const CommandNote& note);

  // Records the background's work and the waits for it; before anything is posted. Borrowed.
  void set_trace(TraceRecorder* trace, int device);

  // Of the first group.
  const Group& direct() const { return *direct_group_; }

  GroupStatistics direct_statistics() const { return direct_->statistics(); }
  GroupStatistics background_statistics() const { return background_->statistics(); }

  // Seconds that the background spent at work, and those of them that waits stood still for.
  double background_seconds() const { return stream_ ? stream_->seconds_communicating() : 0; }
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  void exchange(const Instruction& instruction, const BoundOperands& operands, Stream& stream,
                Communicator& communicator, const CommandNote& note) const;
  void sum(const Exchange& exchange, const BoundOperands& operands, Stream& stream,
           Communicator& communicator, const CommandNote& note) const;
  void wait(const Instruction& instruction, Stream& compute);
  void ran(const CommandNote& note, int64_t begin, int64_t end) override;

  std::optional<Group> direct_group_;
  std::unique_ptr<Communicator> direct_;
  std::unique_ptr<Communicator> background_;
  TraceRecorder* trace_ = nullptr;
  int trace_device_ = 0;
  std::vector<Event> done_;  // by ticket
  double exposed_seconds_ = 0;
  std::unique_ptr<Stream> stream_;  // last: it uses the communicators; null with nobody
};

}  // namespace millrace
