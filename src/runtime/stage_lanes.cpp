#include "runtime/stage_lanes.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/parts.h"

namespace millrace {

StageLanes::StageLanes(const StageLaneOptions& options, Session& session, const Program& training,
                       const Program* evaluation, Bell& bell)
    : options_(options),
      session_(session),
      training_(training),
      scratch_(session.channels() + ring_bytes(options.ends)) {
  if (channel_bytes(options.ends) > training.memory.channels) {
    throw std::logic_error("a stage was compiled without room for its channels");
  }
  for (const RouteEnd& end : options.ends) {
    const Route& route = end.route;
    LaneOptions lane = {.name = route.name(),
                        .group = options.messages,
                        .peer = end.sends ? route.to_device : route.from_device,
                        .tag = route.tag,
                        .buffers = {},
                        .bytes = route.bytes,
                        .bell = &bell,
                        .trace = options.trace,
                        .trace_device = options.trace_device};
    if (route.from_device == route.to_device) {
      lane.group = options.loopbacks->end(route.from_device, route.tag, end.sends);
      lane.peer = end.sends ? 1 : 0;
    }
    for (int64_t i = 0; i < end.slots; ++i) {
      lane.buffers.push_back(session.channels() + end.offset + i * end.stride);
    }
    End made = {route, slot_name(route, end.sends), nullptr, nullptr, {}};
    made.moves.push_back(move(training, end));
    if (evaluation != nullptr && !route.gradient) made.moves.push_back(move(*evaluation, end));
    if (end.sends) {
      made.sends = std::make_unique<SendLane>(session.device(), std::move(lane));
    } else {
      made.receives = std::make_unique<ReceiveLane>(session.device(), std::move(lane));
    }
    ends_.push_back(std::move(made));
  }
}

std::string StageLanes::slot_name(const Route& route, bool sends) const {
  if (!route.gradient) return route.edge.name;
  return sends ? route.edge.name + ".grad" : arriving_gradient(route.edge);
}

std::optional<StageLanes::Move> StageLanes::move(const Program& program,
                                                 const RouteEnd& end) const {
  const std::string name = slot_name(end.route, end.sends);
  const Slot& slot = end.sends ? program.result(name) : program.input(name);
  const int64_t rows = end.route.edge.type.shape[0];
  RowRange held = {0, rows};
  if (!options_.request.round_robin) {
    const auto members =
        static_cast<int>(options_.request.devices.at(static_cast<size_t>(options_.stage)).size());
    held = {part_begin(rows, options_.member, members),
            part_begin(rows, options_.member + 1, members)};
  }
  if (slot.type.shape.at(0) != held.end - held.begin) {
    throw std::logic_error(fmt::format("'{}' holds {} rows on member {} of stage {} instead of {}",
                                       name, slot.type.shape[0], options_.member, options_.stage,
                                       held.end - held.begin));
  }
  const RowRange own = {end.route.rows.begin - held.begin, end.route.rows.end - held.begin};
  return Move{&slot, make_row_copy({.name = slot.name,
                                    .tensor = {slot.type, slot.layout},
                                    .rows = own,
                                    .out = end.sends,
                                    .wire = end.route.wire})};
}

bool StageLanes::matters(const End& end, bool gradients, int64_t micro_batch) const {
  return end.route.gradient == gradients && carries(end.route, options_.request, micro_batch);
}

StageLanes::Move& StageLanes::move_of(End& end, const Program& program) {
  return *end.moves.at(&program == &training_ ? 0 : 1);
}

void StageLanes::move_rows(const Move& move, DeviceAddress from, DeviceAddress to) {
  session_.stream().give(command::Launch{
      .kernel = move.copy.get(), .inputs = {&from, 1}, .outputs = {&to, 1}, .workspace = scratch_});
}

void StageLanes::expect(int64_t micro_batches, bool gradients) {
  for (End& end : ends_) {
    if (!end.receives || (end.route.gradient && !gradients)) continue;
    int64_t count = 0;
    for (int64_t m = 0; m < micro_batches; ++m) {
      count += carries(end.route, options_.request, m) ? 1 : 0;
    }
    end.receives->expect(count);
  }
}

bool StageLanes::can_receive(bool gradients, int64_t micro_batch) const {
  for (const End& end : ends_) {
    if (end.receives && matters(end, gradients, micro_batch) && !end.receives->is_ready()) {
      return false;
    }
  }
  return true;
}

bool StageLanes::can_send(bool gradients, int64_t micro_batch) const {
  for (const End& end : ends_) {
    if (end.sends && matters(end, gradients, micro_batch) && !end.sends->has_room()) return false;
  }
  return true;
}

void StageLanes::receive(const Program& program, bool gradients, int64_t micro_batch, int copy,
                         WaitMeter& waits) {
  const WaitCause cause = gradients ? WaitCause::gradients : WaitCause::activations;
  for (End& end : ends_) {
    if (!end.receives || !matters(end, gradients, micro_batch)) continue;
    const DeviceAddress message =
        waits.measure(cause, micro_batch, [&] { return end.receives->front(session_.stream()); });
    const Move& into = move_of(end, program);
    move_rows(into, message, session_.address(program, *into.slot, copy));
    end.receives->pop(session_.stream());
  }
}

void StageLanes::send(const Program& program, bool gradients, int64_t micro_batch, int copy,
                      WaitMeter& waits) {
  for (End& end : ends_) {
    if (!end.sends || !matters(end, gradients, micro_batch)) continue;
    const DeviceAddress message = waits.measure(
        WaitCause::room, micro_batch, [&] { return end.sends->reserve(session_.stream()); });
    const Move& from = move_of(end, program);
    move_rows(from, session_.address(program, *from.slot, copy), message);
    end.sends->commit(session_.stream());
  }
}

void StageLanes::drain(WaitMeter& waits) {
  for (End& end : ends_) {
    if (end.sends) waits.measure(WaitCause::room, -1, [&] { end.sends->drain(); });
  }
}

bool StageLanes::receives(std::string_view input) const {
  for (const End& end : ends_) {
    if (end.receives && end.slot_name == input) return true;
  }
  return false;
}

}  // namespace millrace
