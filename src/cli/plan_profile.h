// `millrace plan --auto --profile`: our own search over a profile instead of a model.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "cli/plan_cluster.h"
#include "cli/plan_pipedream.h"

namespace millrace::cli {

// What the user typed. Borrows it.
struct ProfilePlanFlags {
  const ClusterFlags& cluster;
  const PipedreamFlags& profile;
  const JobFlags& job;
  const std::string& workers;
  bool json = false;
};

// Whether the user asked for it.
bool uses_profile(const CLI::App& command, const ProfilePlanFlags& flags);

// Plans and prints; returns the exit status. Throws InputError for flags that do not go together.
int run_profile_plan(const CLI::App& command, const ProfilePlanFlags& flags);

}  // namespace millrace::cli
