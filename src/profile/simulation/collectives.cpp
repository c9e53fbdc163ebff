#include "profile/simulation/collectives.h"

#include <algorithm>

namespace millrace::profile {

SimulatedCollectives::SimulatedCollectives(ItemWriter& writer)
    : writer_(writer), joined_(static_cast<size_t>(writer.workers().count()), 0) {
  for (const std::vector<int>& devices : writer.job().devices) {
    rings_.push_back(writer.fabric().ring(devices));
  }
}

int SimulatedCollectives::join(int worker, planner::Collective kind, double bytes) {
  const SimulatedWorker& one = writer_.workers()[worker];
  const auto stage = static_cast<size_t>(one.stage);
  const int64_t number = joined_[static_cast<size_t>(worker)]++;
  Meeting& collective = collectives_[{one.stage, number}];
  if (collective.meet < 0) {
    collective.meet = writer_.add("meet", "communication", -1, -1);
    collective.done = writer_.add("done", "communication", -1, -1);
  }
  writer_.follow(collective.meet, writer_.last(worker));
  const bool local = writer_.host().is_shared() && is_in_one_machine(one.stage);
  if (!local && one.member != 0) return collective.done;
  const int part =
      writer_.add("gradients", "communication", writer_.background_lane(worker), worker);
  planner::SimulationItem& item = writer_.item(part);
  planner::route_collective(item, rings_[stage], kind,
                            static_cast<int>(writer_.job().devices[stage].size()), bytes,
                            writer_.job().host.collective_efficiency);
  if (local) {
    item.links = {writer_.host().cores_of(one.device)};
    item.weights = {1 / item.rate};
  }
  writer_.follow(part, collective.meet);
  writer_.follow(collective.done, part);
  return collective.done;
}

bool SimulatedCollectives::is_in_one_machine(int stage) const {
  const std::vector<int>& devices = writer_.job().devices[static_cast<size_t>(stage)];
  const HostLinks& host = writer_.host();
  return std::all_of(devices.begin(), devices.end(), [&](int device) {
    return host.machine_of(device) == host.machine_of(devices[0]);
  });
}

}  // namespace millrace::profile
