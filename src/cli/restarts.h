// A job that starts again by itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/elastic.h"

namespace millrace::cli {

class Interruption;

struct Restarts {
  int most = 0;
  std::filesystem::path checkpoint;    // the job's directory of checkpoints
  std::vector<std::string> arguments;  // of the program, as it was started
  std::optional<ElasticJob> elastic;   // goes on without the hosts that are lost
};

// The arguments of a run that goes on from the newest checkpoint: `--restarts` with its value and
// `--elastic` left out, or taken back if a file of flags gave them, and `--resume` added. The first
// run keeps the `--resume` of its user, or none.
std::vector<std::string> arguments_of_run(const std::vector<std::string>& arguments, bool first);

// Runs this very program with the arguments, and again from the newest checkpoint each time that it
// ends by a signal or as a failed job, at most `most` times more. A job that fails twice at the
// same step on the same hosts is given up: it would fail for ever. Signals go to the run that is
// under way. Returns its exit status.
int run_restarting(const Restarts& restarts, Interruption& interruption);

}  // namespace millrace::cli
