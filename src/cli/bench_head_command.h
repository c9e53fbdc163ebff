// Parts of `millrace bench`.
#pragma once

#include "bench/request_loop.h"
#include "cli/command.h"

namespace millrace::cli {

void add_bench_head_command(CLI::App& bench, Action& chosen);

// Requests from standard input, answers to standard output.
bench::RequestLines standard_lines();

}  // namespace millrace::cli
