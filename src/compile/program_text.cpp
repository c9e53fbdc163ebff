#include "compile/program_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::compile {
namespace {

constexpr size_t kMostBuffers = 4;  // of a list that are shown

std::string_view name_of(ArenaRegion region) {
  constexpr std::string_view kNames[] = {"state", "weights", "saved", "scratch", "channels"};
  return kNames[static_cast<size_t>(region)];
}

std::string text_of(const std::vector<Address>& buffers) {
  std::string text;
  for (size_t i = 0; i < std::min(buffers.size(), kMostBuffers); ++i) {
    text +=
        fmt::format("{}{}+{}", i == 0 ? "" : " ", name_of(buffers[i].region), buffers[i].offset);
  }
  if (buffers.size() > kMostBuffers) {
    text += fmt::format(" and {} more", buffers.size() - kMostBuffers);
  }
  return text;
}

std::string other_side(const Program& program, const Instruction& one) {
  if (!one.is_of_message()) return {};
  const parallel::RouteEnd& end = program.channels[static_cast<size_t>(one.channel)];
  std::string text = fmt::format("  {} device {}", end.sends ? "to" : "from", end.peer_device());
  if (one.turn.every > 1) {
    text += fmt::format(", micro-batches {} of every {}", one.turn.index, one.turn.every);
  }
  return text;
}

char letter_of(parallel::Work work) { return "FBBWU"[static_cast<size_t>(work)]; }

}  // namespace

std::string to_text(const Program& program) {
  std::string text;
  for (const TaskRange& task : program.tasks) {
    text += program.runs_whole() ? "" : fmt::format("{}:\n", parallel::name_of(task.work));
    for (size_t i = task.begin; i < task.end; ++i) {
      const Instruction& one = program.instructions[i];
      const int64_t bytes = one.exchanges() ? one.exchanged_bytes : one.bytes_touched;
      text += fmt::format("{:>5}  {:<9}{:<15}{:<44}{:<24}{:>12} B {:>14.0f} flop  {} -> {}{}\n", i,
                          graph::name_of(one.phase), name_of(one.kind), one.name,
                          one.kind == InstructionKind::compute ? one.implementation : "", bytes,
                          one.arithmetic, text_of(one.inputs), text_of(one.outputs),
                          other_side(program, one));
    }
  }
  return text;
}

std::string order_text(const std::vector<parallel::RowTask>& order, bool of_several) {
  constexpr size_t kMost = 200;
  std::string text = "order:";
  for (size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    const parallel::Task& task = order[i].task;
    text += fmt::format(" {}{}", letter_of(task.work), task.micro_batch);
    if (of_several) text += fmt::format("/{}", order[i].row);
  }
  if (order.size() > kMost) text += fmt::format(" and {} more", order.size() - kMost);
  return text + "\n";
}

}  // namespace millrace::compile
