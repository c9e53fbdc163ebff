// A Program for people.
#pragma once

#include <string>

#include "compile/program.h"

namespace millrace {

// A line for each instruction: phase, kind, name, what runs it, the buffers that it reads and
// writes (region and offset), bytes and arithmetic. Phases that are run apart are set apart.
std::string to_text(const Program& program);

}  // namespace millrace
