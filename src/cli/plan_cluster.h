// `millrace plan --cluster`: what a job would take on a described cluster, as a given plan or as
// the best that a search finds.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "cli/cluster_report.h"
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
  int finalists = 12;
  bool no_measure = false;
};

// Adds the flags, and those of the job that no other command has added to `command` before.
void add_cluster_flags(CLI::App& command, ClusterFlags& flags);

// Whether the user asked for a cluster. Throws InputError for flags that need one.
bool uses_cluster(const CLI::App& command, const ClusterFlags& flags);

// The cluster of this name or file, measured where it is this machine; none: this machine.
Cluster described_cluster(const std::string& name);

struct SearchSetup {
  PlanInputs inputs;
  SearchRequest request;
};

// What `--auto` starts from on this cluster. Throws InputError naming the flag at fault.
SearchSetup search_setup(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                         const Cluster& cluster);

// Plans and prints; returns the exit status.
int run_cluster_plan(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                     bool json);

}  // namespace millrace
