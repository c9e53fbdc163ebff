#include "planner/search/profiled_network.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "planner/antichain.h"

namespace millrace::planner {
namespace {

constexpr double kMostPlans = 1e11;
constexpr int kMostPerMachine = 1024;
constexpr int kMostPlanned = 4096;
constexpr double kAnySpeed = 1e12;

// About how many plans PipeDream's optimizer compares.
double compared_plans(double states, const std::vector<Level>& levels) {
  double sum = 0;
  for (size_t level = 0; level < levels.size(); ++level) {
    const double workers = levels[level].workers;
    const double starts = level + 1 < levels.size() ? states : 1;
    sum += starts * states * states * workers * workers;
  }
  return sum;
}

bool is_quick(const Profile& profile, const PipedreamOptions& options) {
  const ProfileGraph graph(profile);
  try {
    return compared_plans(static_cast<double>(find_states(graph).states.size()), options.levels) <=
           kMostPlans;
  } catch (const InputError&) {
    return false;  // too many states
  }
}

}  // namespace

ProfiledNetwork divide_profile(const Profile& profile, const PipedreamOptions& options,
                               double samples) {
  PipedreamPlan plan;
  if (is_quick(profile, options)) plan = optimize_pipedream(profile, options);
  const std::vector<int> order = planned_order(profile, plan.stages);
  ProfiledNetwork result;
  result.network = work_of(profile, order, samples);
  Division division = place_division(plan.stages, options.levels);
  if (!division.empty()) result.divisions.push_back(std::move(division));
  std::vector<bool> ignored(profile.nodes.size(), false);
  const ProfileGraph graph(profile);
  for (const int node : graph.order()) ignored[node] = true;
  for (const int node : order) ignored[node] = false;
  for (size_t i = 0; i < ignored.size(); ++i) {
    if (ignored[i]) result.ignored.push_back(profile.nodes[i].id);
  }
  return result;
}

simulate::Cluster cluster_of(const std::vector<Level>& levels) {
  if (levels.size() > 2) {
    fail_input(
        "‹workers› has {} levels; ‹auto› takes one or two, devices of a machine and machines.",
        levels.size());
  }
  simulate::Cluster cluster;
  cluster.name = "workers";
  cluster.source = "‹workers› and ‹bandwidth›";
  cluster.devices_per_machine = levels.at(0).workers;
  cluster.machines = levels.size() > 1 ? levels[1].workers : 1;
  if (cluster.devices_per_machine > kMostPerMachine || cluster.devices() > kMostPlanned) {
    fail_input("‹workers› has {} devices, {} in a machine; ‹auto› takes up to {} and {}.",
               cluster.devices(), cluster.devices_per_machine, kMostPlanned, kMostPerMachine);
  }
  cluster.device = {.name = "worker",
                    .memory_bytes = std::numeric_limits<double>::infinity(),
                    .fp32_operations = kAnySpeed,
                    .fp16_operations = kAnySpeed,
                    .bf16_operations = kAnySpeed,
                    .memory_bandwidth = kAnySpeed};
  cluster.classes["PHB"] = {levels[0].bandwidth, 0};
  if (levels.size() > 1) cluster.network = {levels[1].bandwidth, 0};
  cluster.links = simulate::equal_links(cluster.devices_per_machine, "PHB");
  return cluster;
}

}  // namespace millrace::planner
