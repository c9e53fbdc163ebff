#include "runtime/lane.h"

#include <algorithm>
#include <stdexcept>

#include "comm/local_group.h"

namespace millrace::runtime {

Lane::Lane(backend::Device& device, LaneOptions options, bool sends)
    : options_(std::move(options)),
      label_{options_.name, sends ? "send" : "receive", options_.layer, options_.bytes, 0, true},
      messages_(backend::join(options_.group)),
      sends_(sends),
      done_(options_.buffers.size()),
      stream_(device.make_stream(backend::StreamKind::background)) {
  if (options_.trace != nullptr) stream_->set_observer(this);
}

Lane::~Lane() {
  try {
    const bool over = std::all_of(done_.begin(), done_.end(),
                                  [](const backend::Event& event) { return event.is_done(); });
    if (!over) options_.group.fail("it stopped while '" + options_.name + "' was on its way");
  } catch (const std::exception&) {
    // The group has failed already.
  }
}

void Lane::transfer(int64_t number, const backend::Event& ready) {
  const backend::DeviceAddress data = buffer(number);
  stream_->await(ready);
  const backend::CommandNote note = {this, number};
  if (sends_) {
    stream_->give(
        backend::command::Send{messages_.get(), options_.peer, data, options_.bytes, options_.tag},
        note);
  } else {
    stream_->give(backend::command::Receive{messages_.get(), options_.peer, data, options_.bytes,
                                            options_.tag},
                  note);
  }
  done_[place(number)] = stream_->record();
  if (options_.bell != nullptr) stream_->give(backend::command::Ring{options_.bell});
}

backend::Event Lane::done(int64_t number) const {
  return number < 0 ? backend::Event() : done_[place(number)];
}

void Lane::ran(const backend::CommandNote& note, int64_t begin, int64_t end) {
  options_.trace->add(options_.trace_device, label_, note.micro_batch, begin, end);
  if (!sends_) return;
  options_.trace->add(options_.trace_device, TraceCategory::communication, options_.name, -1, begin,
                      end);
}

backend::DeviceAddress SendLane::reserve(backend::Stream& stream) {
  stream.await(done(committed_ - ring_size()));
  return next();
}

void SendLane::commit(backend::Stream& stream) { transfer(committed_++, stream.record()); }

ReceiveLane::ReceiveLane(backend::Device& device, LaneOptions options)
    : Lane(device, std::move(options), false), read_(static_cast<size_t>(ring_size())) {}

void ReceiveLane::expect(int64_t count) {
  expected_ += count;
  allow_next();
}

backend::DeviceAddress ReceiveLane::front(backend::Stream& stream) {
  if (popped_ == allowed_) throw std::logic_error("'" + name() + "' expects no more messages");
  stream.await(done(popped_));
  return next();
}

void ReceiveLane::pop(backend::Stream& stream) {
  read_[place(popped_++)] = stream.record();
  allow_next();
}

void ReceiveLane::allow_next() {
  for (; allowed_ < std::min(expected_, popped_ + ring_size()); ++allowed_) {
    transfer(allowed_, read_[place(allowed_)]);
  }
}

comm::Group Loopbacks::end(int device, int tag, bool sends) {
  std::vector<comm::Group>& groups = groups_[{device, tag}];
  if (groups.empty()) groups = comm::make_local_groups(2, {});
  return groups[sends ? 0 : 1];
}

}  // namespace millrace::runtime
