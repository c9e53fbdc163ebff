// `millrace plan --cluster`: what a job would take on a described cluster, as a given plan or as
// the best that a search finds.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "cli/cluster_flags.h"
#include "cli/cluster_report.h"
#include "cli/job_flags.h"

namespace millrace::cli {

// The cluster of this name or file, measured where it is this machine; none: this machine.
simulate::Cluster described_cluster(const std::string& name);

struct SearchSetup {
  planner::PlanInputs inputs;
  planner::SearchRequest request;
};

// What `--auto` starts from on this cluster. Throws InputError naming the flag at fault.
SearchSetup search_setup(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                         const simulate::Cluster& cluster);

// Plans and prints; returns the exit status.
int run_cluster_plan(const CLI::App& command, const ClusterFlags& flags, const JobFlags& job,
                     bool json);

}  // namespace millrace::cli
