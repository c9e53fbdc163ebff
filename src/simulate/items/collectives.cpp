#include "simulate/items/collectives.h"

#include <algorithm>

namespace millrace::simulate {

SimulatedCollectives::SimulatedCollectives(ItemWriter& writer)
    : writer_(writer), joined_(static_cast<size_t>(writer.workers().count()), 0) {
  for (const std::vector<int>& devices : writer.job().devices) {
    rings_.push_back(writer.fabric().ring(devices));
  }
}

void SimulatedCollectives::take_time(int id, int stage, const CostedStep& step) {
  if (step.bytes <= 0) return;
  const auto place = static_cast<size_t>(stage);
  route_collective(writer_.item(id), rings_[place], step.collective,
                   static_cast<int>(writer_.job().devices[place].size()), step.bytes,
                   writer_.job().costs.collective_efficiency);
  if (!step.on_links) writer_.item(id).links.clear();
}

// A sum within a machine takes a core from its device, and of the memory what it was measured with:
// all members at once.
void SimulatedCollectives::take_host(int id, int device, int members, const CostedStep& step) {
  SimulationItem& item = writer_.item(id);
  if (item.bytes <= 0) return;
  const double packing = writer_.job().costs.packing_rate;
  if (packing > 0) {
    item.rate = item.bytes / (item.bytes / item.rate + 2 * step.packed_bytes / packing);
  }
  const HostLinks& host = writer_.host();
  item.links = {host.cores_of(device)};
  item.weights = {1 / item.rate};
  if (writer_.job().host.busy_devices < 2) return;
  item.links.push_back(host.memory_of(device));
  item.weights.push_back(1 / (item.rate * members));
}

int SimulatedCollectives::join(int worker, const CostedStep& step, int64_t micro_batch) {
  const SimulatedWorker& one = writer_.workers()[worker];
  const auto add_part = [&] {
    return writer_.add("gradients", "communication", writer_.background_lane(worker), worker);
  };
  if (writer_.job().costs.programs[static_cast<size_t>(one.stage)].size() == 1) {
    const bool waits = step.kind == CostedStep::Kind::together;
    const int before = writer_.last(worker);
    const int part = waits
                         ? writer_.add_own("gradients", "communication", worker, 0, 0, micro_batch)
                         : add_part();
    if (!waits) writer_.follow(part, before);
    take_time(part, one.stage, step);
    return part;
  }
  const int64_t number = joined_[static_cast<size_t>(worker)]++;
  Meeting& collective = collectives_[{one.stage, number}];
  if (collective.meet < 0) {
    collective.meet = writer_.add("meet", "communication", -1, -1);
    collective.done = writer_.add("done", "communication", -1, -1);
  }
  writer_.follow(collective.meet, writer_.last(worker));
  const bool local = writer_.host().is_shared() && is_in_one_machine(one.stage);
  if (!local && one.member != 0) return collective.done;
  const int part = add_part();
  take_time(part, one.stage, step);
  if (local) {
    take_host(part, one.device, static_cast<int>(writer_.job().devices[one.stage].size()), step);
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

}  // namespace millrace::simulate
