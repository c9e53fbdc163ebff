// Finds where a computation goes wrong: values that are not finite, layers that went dead.
//
// Checks are kernels behind kernels: a checked instruction runs, then what it wrote is looked at,
// and Suspicious (kernels/watch.h) is thrown before anything later runs. A session that runs the
// program hands the exception to its caller.
#pragma once

#include <string>

#include "compile/program.h"
#include "kernels/watch.h"
#include "runtime/session.h"

namespace millrace::runtime {

enum class Watch : uint8_t {
  loss,     // the result "loss" alone: costs nothing, and no update has happened yet
  finite,   // everything that any instruction writes
  weights,  // as finite, but for gradients, which may overflow where updates look at them first
  alive,    // likewise in the forward phase, and no output has the same value everywhere
};

// Replaces earlier checks. The program must not be running.
void watch(compile::Program& program, Watch what);

// A clause that says what is at fault with a step whose loss was caught by Watch::loss, or looks
// collapsed: checks parameters and inputs, then runs the step once more with `what` watched. The
// program's updates may happen; meant for a job that ends. Empty if nothing is found.
std::string explain_step(Session& session, compile::Program& program,
                         const kernels::StepState& step, Watch what);

}  // namespace millrace::runtime
