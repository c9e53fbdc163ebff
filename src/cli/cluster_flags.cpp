#include "cli/cluster_flags.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/flag_numbers.h"
#include "parallel/schedule.h"
#include "planner/cluster/cluster.h"

namespace millrace::cli {
namespace {

constexpr const char* kClusterGroup = "On a described cluster";

}  // namespace

void add_cluster_flags(CLI::App& command, ClusterFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group(kClusterGroup);
  };
  std::string names;
  for (const std::string& name : planner::builtin_cluster_names()) names += name + ", ";
  add("--cluster", flags.cluster,
      fmt::format("The machines: {}here (measured, see millrace profile --machine) or a file that "
                  "describes them",
                  names));
  add("--as", flags.system,
      "Whose costs: millrace, pytorch (guesses), oneflow, pipedream or insightface (fitted to "
      "published results)")
      ->capture_default_str();
  command
      .add_flag("--auto", flags.automatic,
                "Search for the fastest plan that fits and trains as one device would: stages, "
                "schedule, micro-batches, recompute, head")
      ->group(kClusterGroup);
  command
      .add_flag("--allow-stale", flags.allow_stale,
                fmt::format("With --auto: also {}, which train on weights a few updates old and "
                            "cost accuracy",
                            parallel::schedule_names(false)))
      ->group(kClusterGroup);
  add("--global-batch", flags.global_batch,
      "With --auto: samples of one update [--batch times the devices]")
      ->check(at_least(1));
  add("--sweep", flags.sweep,
      "Plan for many values of one number and print a table: devices=1..64 (doubling), "
      "batch=8..64/8 (steps of 8) or bandwidth=1e9,1e10 (bytes per second between machines)");
  add("--csv", flags.csv, "With --sweep: write the table to this file too");
  add("--picture", flags.picture, "With --sweep: draw it into this file, as SVG");
  add("--price", flags.price, "EUR that a device costs an hour: tells what an epoch and a run cost")
      ->check(between(1e-4, 1e5));
  command
      .add_flag("--explain", flags.explain,
                "Say what bounds each stage, and plan again with one more device, twice the "
                "devices, bandwidth or memory, and 16 bits")
      ->group(kClusterGroup);
  add("--finalists", flags.finalists,
      "With --auto on this machine: plans that are measured before one is chosen")
      ->capture_default_str();
  command
      .add_flag("--no-measure", flags.no_measure,
                "With --auto on this machine: choose by formula, without measuring")
      ->group(kClusterGroup);
  add("--constants", flags.constants, "Cost constants to use instead of the built-in ones");
  add("--output", flags.output, "Write the chosen plan to this file");
  if (command.get_option_no_throw("--trace") == nullptr) {
    add("--trace", flags.trace, "Write the simulated timeline to this file (Chrome trace)");
  }
}

bool uses_cluster(const CLI::App& command, const ClusterFlags& flags) {
  if (!flags.cluster.empty() || flags.automatic) return true;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0 && option->get_group() == kClusterGroup) {
      fail_input("--{} needs --cluster or --auto.", option->get_lnames().front());
    }
  }
  return false;
}

}  // namespace millrace::cli
