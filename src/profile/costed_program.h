// What a device's program does as the simulator sees it: stretches of computing, and what is asked
// of the other devices between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/program.h"
#include "planner/simulate/collective.h"

namespace millrace::profile {

struct CostedStep {
  enum class Kind : uint8_t {
    compute,
    post,      // a sum or a gathering starts in the background
    wait,      // until that ticket has ended
    together,  // a sum or a gathering that the device waits for
  };
  Kind kind = Kind::compute;
  graph::Phase phase = graph::Phase::forward;
  double seconds = 0;       // of computing, alone
  double busy_seconds = 0;  // with all devices of the host at work
  double bytes = 0;         // of the tensor that is exchanged
  int64_t ticket = -1;
  planner::Collective collective = planner::Collective::all_reduce;  // of `post` and `together`
};

using CostedSteps = std::vector<CostedStep>;

// Plain data. A program that is only run whole has everything in `forward`, and its whole arena in
// `persistent_bytes`.
struct CostedProgram {
  CostedSteps forward, backward, backward_weights, update;
  double persistent_bytes = 0;  // state, all versions of the weights, channels
  double saved_bytes = 0;       // of one micro-batch under way
  double scratch_bytes = 0;     // while a phase runs
  bool updates_in_backward = false;
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

}  // namespace millrace::profile
