// `millrace plan --auto` on this machine: finds the plans that are worth a trial, measures their
// programs here and chooses the one that is predicted to be the fastest.
#pragma once

#include <CLI/App.hpp>

#include "cli/job_flags.h"
#include "cli/plan_check.h"
#include "cli/plan_cluster.h"

namespace millrace::cli {

// Whether the flags ask for a search on this machine, as Millrace.
bool plans_here(const ClusterFlags& flags);

// Plans and prints, the progress to standard error; returns the exit status. This process must not
// have started threads yet.
int run_here_plan(const CLI::App& command, const ClusterFlags& flags, const CheckFlags& check,
                  const JobFlags& job, bool json);

}  // namespace millrace::cli
