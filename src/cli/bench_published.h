// `millrace bench published`: the published tables next to predictions.
#pragma once

#include <CLI/App.hpp>

#include "cli/command.h"

namespace millrace::cli {

void add_published_suite(CLI::App& bench, Action& chosen, Interruption& interruption);

}  // namespace millrace::cli
