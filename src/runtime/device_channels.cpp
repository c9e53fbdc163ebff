#include "runtime/device_channels.h"

namespace millrace::runtime {

DeviceChannels::DeviceChannels(backend::Device& device, const DeviceChannelOptions& options,
                               WaitMeter& waits)
    : waits_(waits) {
  for (const parallel::RouteEnd& end : options.ends) {
    const parallel::Route& route = end.route;
    LaneOptions lane = {.name = route.name(),
                        .layer = route.layer(),
                        .group = options.messages,
                        .peer = end.peer_device(),
                        .tag = route.tag,
                        .buffers = {},
                        .bytes = route.bytes,
                        .bell = options.bell,
                        .trace = options.trace,
                        .trace_device = options.trace_device};
    if (route.from_device == route.to_device) {
      lane.group = options.loopbacks->end(route.from_device, route.tag, end.sends);
      lane.peer = end.sends ? 1 : 0;
    }
    for (int64_t i = 0; i < end.slots; ++i) {
      lane.buffers.push_back(options.memory + end.offset + i * end.stride);
    }
    End made = {route.gradient, nullptr, nullptr};
    if (end.sends) {
      made.sends = std::make_unique<SendLane>(device, std::move(lane));
    } else {
      made.receives = std::make_unique<ReceiveLane>(device, std::move(lane));
    }
    ends_.push_back(std::move(made));
  }
}

ReceiveLane& DeviceChannels::receiving(int channel) const {
  return *ends_.at(static_cast<size_t>(channel)).receives;
}

SendLane& DeviceChannels::sending(int channel) const {
  return *ends_.at(static_cast<size_t>(channel)).sends;
}

backend::DeviceAddress DeviceChannels::buffer(int channel) const {
  const End& end = ends_.at(static_cast<size_t>(channel));
  return end.sends ? end.sends->next() : end.receives->next();
}

void DeviceChannels::receive(int channel, backend::Stream& stream, int64_t micro_batch) {
  const bool gradient = ends_.at(static_cast<size_t>(channel)).gradient;
  waits_.measure(gradient ? WaitCause::gradients : WaitCause::activations, micro_batch,
                 [&] { receiving(channel).front(stream); });
}

void DeviceChannels::reserve(int channel, backend::Stream& stream, int64_t micro_batch) {
  waits_.measure(WaitCause::room, micro_batch, [&] { sending(channel).reserve(stream); });
}

bool DeviceChannels::are_drained() const {
  bool all = true;
  for (const End& end : ends_) {
    if (end.sends && !end.sends->is_drained()) all = false;
  }
  return all;
}

void DeviceChannels::drain() {
  for (End& end : ends_) {
    if (end.sends) waits_.measure(WaitCause::room, -1, [&] { end.sends->drain(); });
  }
}

}  // namespace millrace::runtime
