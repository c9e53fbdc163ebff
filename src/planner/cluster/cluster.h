// Descriptions of clusters: files, those that come with Millrace, and this machine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "simulate/cluster.h"

namespace millrace::planner {

// Reads a description in JSON or YAML, or what `lstopo --of xml` says of a machine; `file` is named
// in errors, and a "topology_file" is looked for next to it. Takes any bytes; throws InputError
// with the field at fault and what it should hold.
simulate::Cluster parse_cluster(std::string_view text, const std::filesystem::path& file);

// The JSON that parse_cluster reads.
Json describe(const simulate::Cluster& cluster);

// Names of the clusters that come with Millrace.
std::vector<std::string> builtin_cluster_names();

// A built-in cluster, "this-machine", or a file. Throws InputError naming `flag`.
simulate::Cluster find_cluster(const std::string& name_or_file, std::string_view flag);

}  // namespace millrace::planner
