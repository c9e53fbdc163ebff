// Profiles of a network in PipeDream's text format: what each operator costs per mini-batch, and
// which operator feeds which.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace::planner {

// One operator. Times and sizes are per mini-batch, finite, and not negative. A list of activation
// sizes is kept as its sum. Updates have no place in the text: they are written as backward.
struct ProfileNode {
  std::string id;
  std::string description;
  double forward_milliseconds = 0;
  double backward_milliseconds = 0;
  double activation_bytes = 0;
  double parameter_bytes = 0;
  std::optional<int> stage = {};
  double update_milliseconds = 0;
};

// Nodes in the order of the file; an edge is (from, to) as indices of nodes. Plain data. One that
// was parsed has different ids, no edge twice and no cycle.
struct Profile {
  std::vector<ProfileNode> nodes;
  std::vector<std::pair<int, int>> edges;
};

// Takes any bytes. Throws InputError naming `file` and the line at fault.
Profile parse_profile(std::string_view text, std::string_view file);
Profile read_profile(const std::filesystem::path& path);

// Numbers with three decimals, or as many more as bring the same number back. Throws InputError for
// a node whose id or description cannot be told from the format's separators.
std::string format_profile(const Profile& profile);

}  // namespace millrace::planner
