// What an update found out about its gradients, and a fault to try it with.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace millrace::runtime {

// An update that changed nothing because a gradient had overflowed on some device.
struct SkippedUpdate {
  int64_t first_micro_batch = 0;  // of those it would have taken in, counted in the segment
  int64_t last_micro_batch = 0;
  bool began_here = false;  // rather than on another device of the stage
  std::string parameter;    // of this device's first such gradient; empty: it has none
};

// Whether the program checks its gradients; the others are for programs that do, after the check,
// and wait for the device.
bool checks_overflow(const compile::Program& program);
bool has_overflowed(Session& session, const compile::Program& program);
// The parameter of the first gradient that is not finite on this device, or nothing.
std::string overflowed_parameter(Session& session, const compile::Program& program);

// Whether one was seen before the gradients were summed over the devices of a stage.
bool overflowed_before_sum(Session& session, const compile::Program& program);

// What a program's update has found that stages add up before they go on: how many have found an
// overflow, and the squares of their gradients; 0 where the program does not look.
using Findings = std::array<float, 2>;
Findings find(Session& session, const compile::Program& program);
void replace(Session& session, const compile::Program& program, const Findings& all);

// Makes a gradient infinite in each of these steps, where the backward pass begins. Before `watch`;
// the program must not be running.
void inject_overflow(compile::Program& program, const std::vector<int64_t>& steps);

}  // namespace millrace::runtime
