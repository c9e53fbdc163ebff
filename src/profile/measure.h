// What the instructions of a job's programs take on the devices here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulate/costed_program.h"
#include "train/engine.h"

namespace millrace::profile {

struct MeasureOptions {
  int rounds = 5;        // with all devices of this process at work at once
  int alone_rounds = 3;  // with one at a time, where there are several
  int warm_up = 1;
};

// Medians over the rounds. Plain data, but for `program`, which is the engine's.
struct MeasuredProgram {
  int stage = 0;
  int member = 0;
  const compile::Program* program = nullptr;
  std::vector<simulate::InstructionCost> costs;  // of each instruction
  std::vector<double> spread;                    // of each instruction, relative
  std::vector<double> totals;                    // of each round
  std::map<std::string, double> copies;          // message to slot or back, see copy_key
  double carry_seconds = 0;  // to begin a new version of the weights as a copy of another

  double round_spread() const;  // half of the middle half, relative
};

// The name under which the copying of a message is kept.
std::string copy_key(const parallel::Route& route, bool sends);

// Runs the training programs of an engine that has been started, with made-up inputs and without
// exchanging anything, on the engine's own devices. Weights change: start again to train. Two
// workers of one device take turns.
std::vector<MeasuredProgram> measure_programs(train::Engine& engine, const MeasureOptions& options);

}  // namespace millrace::profile
