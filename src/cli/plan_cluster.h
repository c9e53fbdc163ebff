// `millrace plan --cluster`: what a job would take on a described cluster, as a given plan or as
// the best that a search finds.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "cli/job_flags.h"

namespace millrace {

// What the user typed beyond the job's own flags.
struct ClusterFlags {
  std::string cluster;
  std::string system = "millrace";
  std::string constants;
  std::string output;
  std::string trace;
  int64_t global_batch = 0;
  bool automatic = false;
  bool synchronous = false;
};

// Adds the flags, and those of the job that no other command has added to `command` before.
void add_cluster_flags(CLI::App& command, ClusterFlags& flags);

// Whether the user asked for a cluster. Throws InputError for flags that need one.
bool uses_cluster(const CLI::App& command, const ClusterFlags& flags);

// Plans and prints; returns the exit status.
int run_cluster_plan(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                     bool json);

}  // namespace millrace
