// A Program for people.
#pragma once

#include <string>

#include "compile/program.h"

namespace millrace::compile {

// A line for each instruction: phase, kind, name, what runs it, bytes and arithmetic, the buffers
// that it reads and writes (region and offset), the device on the other side; task by task.
std::string to_text(const Program& program);

// The tasks of a device one after the other, "F0 F1 B0": forward, backward, backward to weights,
// update, and the micro-batch; with the row of the schedule where it runs several.
std::string order_text(const std::vector<parallel::RowTask>& order, bool of_several);

}  // namespace millrace::compile
