#include "planner/cost/boundary.h"

#include <algorithm>
#include <map>

namespace millrace::planner {
namespace {

// Which share of a stage's devices each machine has.
std::map<int, double> shares_of_machines(const PlannedStage& stage, int devices_per_machine) {
  std::map<int, double> shares;
  for (const int device : stage.devices) {
    shares[device / devices_per_machine] += 1.0 / static_cast<double>(stage.devices.size());
  }
  return shares;
}

// The largest part of the bytes that leaves one machine.
double leaving_share(const std::map<int, double>& from, const std::map<int, double>& to) {
  double most = 0;
  for (const auto& [machine, share] : from) {
    const auto stays = to.find(machine);
    most = std::max(most, share * (1 - (stays == to.end() ? 0 : stays->second)));
  }
  return most;
}

double slowest_rate(const PlannedStage& from, const PlannedStage& to,
                    const simulate::Fabric& fabric) {
  double rate = fabric.between(from.devices.front(), to.devices.back()).rate;
  for (const int source : {from.devices.front(), from.devices.back()}) {
    for (const int target : {to.devices.front(), to.devices.back()}) {
      if (source != target) rate = std::min(rate, fabric.between(source, target).rate);
    }
  }
  return rate;
}

}  // namespace

double boundary_seconds(const PlannedStage& from, const PlannedStage& to, double bytes,
                        const simulate::Cluster& cluster, const simulate::Fabric& fabric,
                        double efficiency) {
  const double fewest = static_cast<double>(std::min(from.devices.size(), to.devices.size()));
  double seconds = bytes / fewest / slowest_rate(from, to, fabric);
  if (cluster.machines > 1) {
    const auto senders = shares_of_machines(from, cluster.devices_per_machine);
    const auto receivers = shares_of_machines(to, cluster.devices_per_machine);
    const double crossing =
        std::max(leaving_share(senders, receivers), leaving_share(receivers, senders));
    seconds = std::max(seconds, bytes * crossing / cluster.network.bandwidth);
  }
  return seconds / efficiency;
}

}  // namespace millrace::planner
