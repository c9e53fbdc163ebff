// All that a device exchanges with the devices of other stages, for one stage.
#pragma once

#include <memory>
#include <vector>

#include "parallel/channels.h"
#include "runtime/lane.h"
#include "runtime/wait_meter.h"

namespace millrace::runtime {

struct DeviceChannelOptions {
  std::vector<parallel::RouteEnd> ends;  // Program::channels
  backend::DeviceAddress memory;         // of their rings
  comm::Group messages;                  // this device's handle in the job's group for messages
  Loopbacks* loopbacks = nullptr;        // only for stages that share a device
  Bell* bell = nullptr;                  // rung after each transfer; may be null
  TraceRecorder* trace = nullptr;
  int trace_device = 0;
};

// Owns a lane for each of the program's channels, and takes its sends, receives and copies of rows
// step by step: a message is received, copied and released, or room is reserved, the copy made and
// sent. Used by the device's thread alone, but for `expect`, which comes before it.
class DeviceChannels {
 public:
  DeviceChannels(backend::Device& device, const DeviceChannelOptions& options, WaitMeter& waits);

  // Lets so many more messages come.
  void expect(int channel, int64_t count) { receiving(channel).expect(count); }
  bool has_message(int channel) const { return receiving(channel).is_ready(); }
  bool has_room(int channel) const { return sending(channel).has_room(); }

  // Of the message that is received, or written, next.
  backend::DeviceAddress buffer(int channel) const;

  // What `stream` is given afterwards may read the message; waits for it where that takes a thread.
  void receive(int channel, backend::Stream& stream, int64_t micro_batch);
  // `stream` has read it.
  void release(int channel, backend::Stream& stream) { receiving(channel).pop(stream); }

  // What `stream` is given afterwards may write the message.
  void reserve(int channel, backend::Stream& stream, int64_t micro_batch);
  // `stream` has written it.
  void send(int channel, backend::Stream& stream) { sending(channel).commit(stream); }

  // Whether all that was sent has been taken; `drain` waits for that.
  bool are_drained() const;
  void drain();

 private:
  struct End {
    bool gradient;
    std::unique_ptr<SendLane> sends;
    std::unique_ptr<ReceiveLane> receives;
  };

  ReceiveLane& receiving(int channel) const;
  SendLane& sending(int channel) const;

  WaitMeter& waits_;
  std::vector<End> ends_;  // by channel
};

}  // namespace millrace::runtime
