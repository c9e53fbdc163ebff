#include "compile/program_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMostBuffers = 4;  // of a list that are shown

std::string_view name_of(ArenaRegion region) {
  switch (region) {
    case ArenaRegion::state:
      return "state";
    case ArenaRegion::weights:
      return "weights";
    case ArenaRegion::saved:
      return "saved";
    case ArenaRegion::scratch:
      return "scratch";
  }
  return "unknown";
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

bool begins_phase(const Program& program, size_t index) {
  const auto begins = [index](const PhaseRange& range) {
    return range.begin == index && range.begin < range.end;
  };
  return std::any_of(program.phases.begin(), program.phases.end(), begins) ||
         begins(program.backward_weights);
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& one = program.instructions[i];
    if (i > 0 && begins_phase(program, i)) text += "\n";
    const int64_t bytes = one.exchanges() ? one.exchanged_bytes : one.bytes_touched;
    text += fmt::format("{:>5}  {:<9}{:<15}{:<44}{:<24}{:>12} B {:>14.0f} flop  {} -> {}\n", i,
                        name_of(one.phase), name_of(one.kind), one.name,
                        one.kind == InstructionKind::compute ? one.implementation : "", bytes,
                        one.arithmetic, text_of(one.inputs), text_of(one.outputs));
  }
  return text;
}

}  // namespace millrace
