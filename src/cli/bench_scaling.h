// millrace bench scaling: more devices, fewer bits.
#pragma once

#include <CLI/App.hpp>

#include "cli/command.h"

namespace millrace::cli {

void add_scaling_suite(CLI::App& bench, Action& chosen);

}  // namespace millrace::cli
