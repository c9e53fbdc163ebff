// `millrace plan --strategy pipedream`: divide a profiled network into stages.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/pipedream.h"

namespace millrace::cli {

// What the user typed. The workers of each level come in a flag that other plans use too.
struct PipedreamFlags {
  std::string strategy;
  std::string profile;
  double profile_batch = 0;  // 0: not given
  std::string bandwidth;
  std::string memory;
  std::optional<double> activation_ratio;
  bool straight = false, fewer = false;
};

void add_pipedream_flags(CLI::App& command, PipedreamFlags& flags);

// Whether the user asked for this strategy. Throws InputError for an unknown one, or for flags of
// `command` that do not belong with the choice.
bool uses_pipedream(const CLI::App& command, const PipedreamFlags& flags);

// The levels of --workers and --bandwidth, and the options for levels. Throw InputError naming the
// flag at fault.
std::vector<planner::Level> parse_levels(const std::string& workers, const std::string& bandwidth);
planner::PipedreamOptions to_options(const PipedreamFlags& flags,
                                     std::vector<planner::Level> levels);

// Plans and prints; returns the exit status.
int run_pipedream(const PipedreamFlags& flags, const std::string& workers, bool json);

// A whole number, not negative. Throws InputError naming `flag`.
int parse_count(std::string_view text, std::string_view flag);

}  // namespace millrace::cli
