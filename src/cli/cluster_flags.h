// Flags of `millrace plan` that describe machines and ask for plans on them.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace millrace::cli {

// What the user typed beyond the job's own flags.
struct ClusterFlags {
  std::string cluster;
  std::string system = "millrace";
  std::string constants;
  std::string output;
  std::string trace;
  int64_t global_batch = 0;
  bool automatic = false;
  bool allow_stale = false;
  std::string sweep;
  std::string csv;
  std::string picture;
  double price = 0;  // of a device, an hour
  bool explain = false;
  int finalists = 12;
  bool no_measure = false;
};

// Adds the flags, and those of the job that no other command has added to `command` before.
void add_cluster_flags(CLI::App& command, ClusterFlags& flags);

// Whether the user asked for a cluster. Throws InputError for flags that need one.
bool uses_cluster(const CLI::App& command, const ClusterFlags& flags);

}  // namespace millrace::cli
