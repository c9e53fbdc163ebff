// Flags that say where each part of a job runs.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "parallel/plan_file.h"

namespace millrace::cli {

// As they stand on the command line.
struct PlanFlags {
  int devices = 0;  // in this process; 0: one, or what the placement says
  std::string placement;
  std::string parallel = "data";
  bool synchronise_batch_norm = false;
  bool share_optimizer = false;
  std::string stage_weights;
  std::vector<std::string> cut_after;
  std::string schedule = "1f1b-flush";
  std::string static_scheduling = "on";
  int64_t micro_batches = 0;  // 0: one, or as many as there are stages where that helps
  std::string replicas = "split";
  std::string plan_file;
};

void add_plan_flags(CLI::App& command, PlanFlags& flags);

// The plan in a file: `plan --output` writes one, and summaries and `plan --json` have one too.
parallel::PlanFile read_plan_file(const std::string& path);

// Understands the flags for a job of so many processes. Throws InputError naming the flag at fault.
parallel::Plan to_plan(const PlanFlags& flags, int processes);

}  // namespace millrace::cli
