// One end of a route between devices: a thread, and a ring of buffers that it fills or empties.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/group.h"
#include "runtime/trace.h"

namespace millrace {

// Wakes a thread that waits for any of several things. Safe from any thread.
class Bell {
 public:
  void ring();
  int64_t rings() const;
  // Returns once it has rung more often than `known`.
  void wait(int64_t known) const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  int64_t rings_ = 0;
};

struct LaneOptions {
  std::string name;  // of what travels, for the trace
  Group group;       // this device's handle for messages
  int peer = 0;      // in the group
  int tag = 0;
  std::vector<std::byte*> buffers;  // the ring, borrowed
  int64_t bytes = 0;                // of a message
  Bell* bell = nullptr;             // rung after each transfer; may be null
  TraceRecorder* trace = nullptr;   // may be null
  int trace_device = 0;
};

// What both directions share: a thread that makes one transfer after the other, as far as it is
// allowed to. All other calls come from the device's thread, and rethrow an error of the thread.
//
// A lane that ends while a transfer is under way fails its group, as the other end could wait for
// ever otherwise.
class Lane {
 public:
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  const std::string& name() const { return options_.name; }
  // Seconds that calls have waited.
  double seconds_waited() const { return seconds_waited_; }

 protected:
  Lane(LaneOptions options, bool sends);
  ~Lane();

  // Lets transfers 0 … total - 1 go; the transfer number i uses buffer i mod the ring.
  void allow(int64_t total);
  int64_t done() const;
  void wait_for(int64_t total);

  std::byte* buffer(int64_t number) const {
    return options_.buffers[static_cast<size_t>(number) % options_.buffers.size()];
  }
  int64_t ring_size() const { return static_cast<int64_t>(options_.buffers.size()); }

 private:
  void serve();
  void transfer(int64_t number);

  LaneOptions options_;
  const bool sends_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int64_t allowed_ = 0;
  int64_t done_ = 0;
  std::exception_ptr error_;
  bool stopping_ = false;
  double seconds_waited_ = 0;
  std::thread thread_;  // last: it uses everything above
};

class SendLane : public Lane {
 public:
  explicit SendLane(LaneOptions options) : Lane(std::move(options), true) {}

  // A free buffer, for which it waits. Nothing is sent before `commit`.
  std::byte* reserve();
  void commit();
  bool has_room() const { return committed_ - done() < ring_size(); }
  // Waits until everything committed has been taken.
  void drain() { wait_for(committed_); }

 private:
  int64_t committed_ = 0;
};

class ReceiveLane : public Lane {
 public:
  explicit ReceiveLane(LaneOptions options) : Lane(std::move(options), false) {}

  // Allows so many more messages.
  void expect(int64_t count);
  // The oldest message, for which it waits; it stays until `pop`.
  const std::byte* front();
  void pop();
  bool is_ready() const { return done() > popped_; }

 private:
  void allow_next();

  int64_t expected_ = 0;
  int64_t popped_ = 0;
};

// Groups between stages that share a device. Owned by whoever makes the lanes; single-threaded.
class Loopbacks {
 public:
  // The handle for one end of the route with this tag; the other end is member 1 of a sender's
  // group and member 0 of a receiver's.
  Group end(int device, int tag, bool sends);

 private:
  std::map<std::pair<int, int>, std::vector<Group>> groups_;
};

}  // namespace millrace
