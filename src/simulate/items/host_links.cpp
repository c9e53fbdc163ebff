#include "simulate/items/host_links.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::simulate {

HostLinks::HostLinks(const SimulatedJob& job, std::vector<SimulationLink>& links)
    : job_(job), begin_(static_cast<int>(links.size())) {
  if (!is_shared()) return;
  for (int machine = 0; machine < job.fabric->cluster().machines; ++machine) {
    links.push_back({fmt::format("machine {} cores", machine), 1.0 * job.host.cores});
    links.push_back({fmt::format("machine {} memory", machine), 1});
  }
  for (int machine = 0; machine < job.fabric->cluster().machines; ++machine) {
    for (const std::vector<int>& team : job.host.teams) {
      for (const int core : team) {
        const auto [entry, added] =
            core_links_.insert({{machine, core}, static_cast<int>(links.size())});
        if (added) links.push_back({fmt::format("machine {} cores {}", machine, core), 1});
      }
    }
  }
}

void HostLinks::occupy(SimulationItem& item, int device, double seconds, double busy) const {
  if (seconds <= 0) return;
  if (!is_shared()) {
    item.seconds = seconds;
    return;
  }
  const SharedHost& host = job_.host;
  item.bytes = seconds;
  item.rate = 1;
  item.links = {cores_of(device)};
  item.weights = {static_cast<double>(host.threads_per_device)};
  if (!host.teams.empty()) {
    const auto place = static_cast<size_t>(device % job_.fabric->cluster().devices_per_machine);
    for (const int core : host.teams.at(place)) {
      item.links.push_back(core_links_.at({machine_of(device), core}));
      item.weights.push_back(1);
    }
  }
  if (host.busy_devices > 1) {
    item.links.push_back(memory_of(device));
    item.weights.push_back(std::max(busy, seconds) / seconds / host.busy_devices);
  }
}

}  // namespace millrace::simulate
