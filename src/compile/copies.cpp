#include "compile/copies.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "kernels/row_copy.h"

namespace millrace::compile {
namespace {

class CopyMaker {
 public:
  CopyMaker(Program& program, const std::vector<parallel::RouteEnd>& channels)
      : program_(program), channels_(channels) {
    if (program.memory.versions < 2) return;
    for (const Slot& slot : program.state) {
      if (slot.role == graph::Role::parameter) old_[slot.address.offset] = &slot;
    }
  }

  void run() {
    size_t agreement = 0;
    for (TaskRange& task : program_.tasks) {
      const size_t begin = made_.size();
      const bool moves = task.work == parallel::Work::forward ||
                         task.work == parallel::Work::backward ||
                         task.work == parallel::Work::backward_input;
      if (moves) add_messages(task.work, false);
      for (size_t i = task.begin; i < task.end; ++i) {
        add_versions(program_.instructions[i]);
        made_.push_back(std::move(program_.instructions[i]));
        if (i == program_.agreement && i > 0) agreement = made_.size() - 1;
      }
      if (moves) add_messages(task.work, true);
      task = {task.work, begin, made_.size()};
    }
    program_.agreement = agreement;
    program_.instructions = std::move(made_);
    program_.channels = channels_;
  }

 private:
  void add_messages(parallel::Work work, bool sends) {
    for (size_t i = 0; i < channels_.size(); ++i) {
      const parallel::RouteEnd& end = channels_[i];
      if (end.sends != sends || end.route.gradient != (work != parallel::Work::forward)) continue;
      const Instruction copy = copy_of(end, static_cast<int>(i));
      Instruction message = copy;
      message.kind = sends ? InstructionKind::send : InstructionKind::receive;
      message.kernel = nullptr;
      message.workspace = {};
      message.bytes_touched = 0;
      message.exchanged_bytes = end.route.bytes;
      message.inputs = sends ? copy.outputs : std::vector<Address>();
      message.outputs = sends ? std::vector<Address>() : copy.inputs;
      made_.push_back(sends ? copy : message);
      made_.push_back(sends ? message : copy);
    }
  }

  Instruction copy_of(const parallel::RouteEnd& end, int channel) const {
    const std::string name = end.tensor();
    const Slot& slot = end.sends ? program_.result(name) : program_.input(name);
    const RowRange held = end.sends ? end.route.from_rows : end.route.to_rows;
    if (slot.type.shape.at(0) != held.end - held.begin) {
      throw std::logic_error(fmt::format("'{}' holds {} rows instead of {}", name,
                                         slot.type.shape[0], held.end - held.begin));
    }
    Instruction copy;
    copy.name = end.route.name();
    copy.type = "copy";
    copy.layer = end.route.layer();
    copy.phase = end.route.gradient ? graph::Phase::backward : graph::Phase::forward;
    copy.kind = InstructionKind::copy;
    copy.kernel = kernels::make_row_copy({.name = slot.name,
                                          .tensor = {slot.type, slot.layout},
                                          .rows = end.rows(),
                                          .out = end.sends,
                                          .wire = end.route.wire});
    const Address message = {ArenaRegion::channels, end.offset, {end.route.bytes}};
    copy.inputs = {end.sends ? slot.address : message};
    copy.outputs = {end.sends ? message : slot.address};
    copy.workspace = {ArenaRegion::channels,
                      parallel::ring_bytes(channels_),
                      {static_cast<int64_t>(copy.kernel->workspace_bytes())}};
    const int64_t rows = end.route.rows.end - end.route.rows.begin;
    copy.bytes_touched = end.route.bytes + slot.bytes / slot.type.shape[0] * rows;
    copy.channel = channel;
    copy.turn = end.peer_turn();
    return copy;
  }

  // Parameters that no update before it has touched.
  void add_versions(const Instruction& update) {
    if (update.phase != graph::Phase::update) return;
    for (const Address& address : update.inputs) {
      if (address.region != ArenaRegion::weights) continue;
      const auto found = old_.find(address.offset);
      if (found == old_.end()) continue;
      Instruction copy;
      copy.name = found->second->name;
      copy.type = "copy";
      copy.layer = copy.name.substr(0, copy.name.rfind('.'));
      copy.phase = graph::Phase::update;
      copy.kind = InstructionKind::copy;
      copy.inputs = {address};
      copy.outputs = {address};
      copy.bytes_touched = 2 * found->second->bytes;
      copy.exchanged_bytes = found->second->bytes;
      made_.push_back(std::move(copy));
      old_.erase(found);
    }
  }

  Program& program_;
  const std::vector<parallel::RouteEnd>& channels_;
  std::map<int64_t, const Slot*> old_;  // by offset
  std::vector<Instruction> made_;
};

}  // namespace

void add_copies(Program& program, const std::vector<parallel::RouteEnd>& channels) {
  CopyMaker(program, channels).run();
}

}  // namespace millrace::compile
