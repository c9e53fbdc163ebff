// What a device's program does as the simulator sees it: stretches of computing, and what is asked
// of the other devices between them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "compile/program.h"
#include "simulate/collective.h"

namespace millrace::simulate {

struct CostedStep {
  enum class Kind : uint8_t {
    compute,
    post,      // a sum or a gathering starts in the background
    wait,      // until that ticket has ended
    together,  // a sum or a gathering that the device waits for
    send,      // what the task makes leaves here, not when the task ends
  };
  Kind kind = Kind::compute;
  graph::Phase phase = graph::Phase::forward;
  double seconds = 0;       // of computing, alone
  double busy_seconds = 0;  // with all devices of the host at work
  double bytes = 0;         // of the tensor that is exchanged
  double packed_bytes = 0;  // of tensors that are copied into one buffer and back for that
  int64_t ticket = -1;
  Collective collective = Collective::all_reduce;  // of `post` and `together`
  bool on_links = true;  // of `together`; false: its turn on the links is counted elsewhere
};

using CostedSteps = std::vector<CostedStep>;

// What there is for each kind of work.
template <typename Value>
class ByWork {
 public:
  Value& operator[](parallel::Work work) { return values_[static_cast<size_t>(work)]; }
  const Value& operator[](parallel::Work work) const { return values_[static_cast<size_t>(work)]; }
  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::array<Value, static_cast<size_t>(parallel::Work::update) + 1> values_;
};

// Plain data. A program that is only run whole has everything in `forward`, and its whole arena in
// `persistent_bytes`.
struct CostedProgram {
  ByWork<CostedSteps> tasks;
  ByWork<CostedSteps> closing;  // with the last micro-batch of a step; empty: as with the others
  double persistent_bytes = 0;  // state, all versions of the weights, channels
  double saved_bytes = 0;       // of one micro-batch under way
  double scratch_bytes = 0;     // while a phase runs
};

// What one instruction takes.
struct InstructionCost {
  double seconds = 0;
  double busy_seconds = 0;
};

// `costs`: one per instruction. Instructions that follow each other become one stretch as long as
// they are of one phase.
CostedProgram cost_program(const compile::Program& program,
                           const std::vector<InstructionCost>& costs);

}  // namespace millrace::simulate
