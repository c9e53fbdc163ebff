// One end of a route between devices: a background stream, and a ring of buffers that it fills or
// empties.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "comm/group.h"
#include "runtime/trace.h"

namespace millrace::runtime {

struct LaneOptions {
  std::string name;   // of what travels, for the trace
  std::string layer;  // that it comes from
  comm::Group group;  // this device's handle for messages
  int peer = 0;       // in the group
  int tag = 0;
  std::vector<backend::DeviceAddress> buffers;  // the ring, borrowed
  int64_t bytes = 0;                            // of a message
  Bell* bell = nullptr;                         // rung after each transfer; may be null
  TraceRecorder* trace = nullptr;               // may be null
  int trace_device = 0;
};

// What both directions share. Calls come from the device's thread; they order what they are given
// behind the transfers by events, and throw an error of a transfer.
//
// A lane that ends while a transfer is under way fails its group, as the other end could wait for
// ever otherwise.
class Lane : private backend::StreamObserver {
 public:
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& name() const { return options_.name; }

 protected:
  Lane(backend::Device& device, LaneOptions options, bool sends);
  ~Lane();

  // Enqueues a transfer of its own buffer once `ready` has come.
  void transfer(int64_t number, const backend::Event& ready);
  // When the transfer is over; those before the first are.
  backend::Event done(int64_t number) const;

  backend::DeviceAddress buffer(int64_t number) const { return options_.buffers[place(number)]; }
  int64_t ring_size() const { return static_cast<int64_t>(options_.buffers.size()); }
  size_t place(int64_t number) const {
    return static_cast<size_t>(number) % options_.buffers.size();
  }

 private:
  void ran(const backend::CommandNote& note, int64_t begin, int64_t end) override;

  LaneOptions options_;
  TraceLabel label_;
  std::unique_ptr<backend::Communicator> messages_;
  const bool sends_;
  std::vector<backend::Event> done_;         // by place in the ring
  std::unique_ptr<backend::Stream> stream_;  // last: it uses everything above
};

class SendLane : public Lane {
 public:
  SendLane(backend::Device& device, LaneOptions options) : Lane(device, std::move(options), true) {}

  // The buffer of the next message.
  backend::DeviceAddress next() const { return buffer(committed_); }
  // Lets `stream` write it from now on. Nothing is sent before `commit`.
  backend::DeviceAddress reserve(backend::Stream& stream);
  // Sends what `stream` has written so far.
  void commit(backend::Stream& stream);
  bool has_room() const { return done(committed_ - ring_size()).is_done(); }
  // Whether everything committed has been taken; `drain` waits for that.
  bool is_drained() const { return done(committed_ - 1).is_done(); }
  void drain() { done(committed_ - 1).wait(); }

 private:
  int64_t committed_ = 0;
};

class ReceiveLane : public Lane {
 public:
  ReceiveLane(backend::Device& device, LaneOptions options);

  // Allows so many more messages.
  void expect(int64_t count);
  // The buffer of the oldest message.
  backend::DeviceAddress next() const { return buffer(popped_); }
  // Lets `stream` read it from now on; it stays until `pop`.
  backend::DeviceAddress front(backend::Stream& stream);
  // `stream` has read it.
  void pop(backend::Stream& stream);
  bool is_ready() const { return popped_ < allowed_ && done(popped_).is_done(); }

 private:
  void allow_next();

  int64_t expected_ = 0;
  int64_t allowed_ = 0;
  int64_t popped_ = 0;
  std::vector<backend::Event> read_;  // by place in the ring
};

// Groups between stages that share a device. Owned by whoever makes the lanes; single-threaded.
class Loopbacks {
 public:
  // The handle for one end of the route with this tag; the other end is member 1 of a sender's
  // group and member 0 of a receiver's.
  comm::Group end(int device, int tag, bool sends);

 private:
  std::map<std::pair<int, int>, std::vector<comm::Group>> groups_;
};

}  // namespace millrace::runtime
