#include "simulate/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace millrace::simulate {
namespace {

constexpr int kWatchedMachines = 32;  // at either end of a ring

bool is_bonded(const Cluster& cluster, int from, int to) {
  const int count = cluster.devices_per_machine;
  if (from / count != to / count) return false;
  return bonded_links(cluster.links.at(from % count).at(to % count)) > 0;
}

bool crosses_sockets(const Cluster& cluster, int from, int to) {
  const int count = cluster.devices_per_machine;
  return from / count == to / count && cluster.links.at(from % count).at(to % count) == "SYS";
}

}  // namespace

// Links, in this order: for each device its ports out and in; for each machine each ordered pair
// of its devices with bonded links; for each machine both directions between sockets; for each
// machine its card out and in.
Fabric::Fabric(const Cluster& cluster) : cluster_(cluster) {
  const int count = cluster.devices_per_machine;
  std::vector<double> ports;  // of the devices of a machine
  for (int device = 0; device < count; ++device) {
    double port = 0, bonded = 0;
    for (int other = 0; other < count; ++other) {
      local_links_.push_back(other == device ? LinkClass{} : cluster.link_between(device, other));
      const double bandwidth = local_links_.back().bandwidth;
      if (other != device && is_bonded(cluster, device, other)) bonded += bandwidth;
      port = std::max(port, bandwidth);
    }
    const double network = cluster.machines > 1 ? cluster.network.bandwidth : 0.0;
    ports.push_back(std::max({port, bonded, network, 1.0}));
  }
  for (int device = 0; device < cluster.devices(); ++device) {
    const double port = ports[static_cast<size_t>(device % count)];
    links_.push_back({fmt::format("device {} out", device), port});
    links_.push_back({fmt::format("device {} in", device), port});
  }
  pairs_begin_ = static_cast<int>(links_.size());
  for (int from = 0; from < count; ++from) {
    for (int to = 0; to < count; ++to) {
      if (from != to && is_bonded(cluster, from, to)) bonded_pairs_.emplace_back(from, to);
    }
  }
  for (int machine = 0; machine < cluster.machines; ++machine) {
    for (const auto& [from, to] : bonded_pairs_) {
      links_.push_back({fmt::format("machine {} pair {}-{}", machine, from, to),
                        local_link(from, to).bandwidth});
    }
  }
  sockets_begin_ = static_cast<int>(links_.size());
  const auto sockets = cluster.classes.find("SYS");
  const double between = sockets == cluster.classes.end() ? 1.0 : sockets->second.bandwidth;
  for (int machine = 0; machine < cluster.machines; ++machine) {
    links_.push_back({fmt::format("machine {} sockets up", machine), between});
    links_.push_back({fmt::format("machine {} sockets down", machine), between});
  }
  network_begin_ = static_cast<int>(links_.size());
  const double network = std::max(cluster.network.bandwidth, 1.0);
  for (int machine = 0; machine < cluster.machines; ++machine) {
    links_.push_back({fmt::format("machine {} network out", machine), network});
    links_.push_back({fmt::format("machine {} network in", machine), network});
  }
}

LinkPath Fabric::between(int from, int to) const {
  if (from == to) return {{}, cluster_.device.memory_bandwidth, 0};
  const LinkClass link = cluster_.link_between(from, to);
  LinkPath route{{2 * from, 2 * to + 1}, link.bandwidth, link.latency};
  const int count = cluster_.devices_per_machine;
  const int machine = from / count, target = to / count;
  if (machine != target) {
    route.links.push_back(network_begin_ + 2 * machine);
    route.links.push_back(network_begin_ + 2 * target + 1);
  } else if (crosses_sockets(cluster_, from, to)) {
    route.links.push_back(sockets_begin_ + 2 * machine + (from < to ? 0 : 1));
  } else if (is_bonded(cluster_, from, to)) {
    const std::pair<int, int> pair(from % count, to % count);
    const auto found = std::lower_bound(bonded_pairs_.begin(), bonded_pairs_.end(), pair);
    route.links.push_back(pairs_begin_ + machine * static_cast<int>(bonded_pairs_.size()) +
                          static_cast<int>(found - bonded_pairs_.begin()));
  }
  return route;
}

LinkClass Fabric::local_link(int from, int to) const {
  return local_links_[static_cast<size_t>(from * cluster_.devices_per_machine + to)];
}

double Fabric::bonded_bandwidth(int device, const std::vector<int>& others) const {
  double sum = 0;
  for (const int other : others) {
    if (other != device && is_bonded(cluster_, device, other)) {
      sum += local_link(device, other).bandwidth;
    }
  }
  return sum;
}

Fabric::LocalRing Fabric::local_ring(const std::vector<int>& local) const {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  double bonded = kUnlimited;
  for (const int device : local) bonded = std::min(bonded, bonded_bandwidth(device, local));
  LocalRing ring{kUnlimited, 0, bonded > 0};
  for (size_t i = 0; local.size() > 1 && i < local.size(); ++i) {
    const LinkClass link = local_link(local[i], local[(i + 1) % local.size()]);
    ring.latency = std::max(ring.latency, link.latency);
    if (!ring.bonded) ring.rate = std::min(ring.rate, link.bandwidth);
  }
  if (local.size() > 1 && ring.bonded) ring.rate = bonded;
  return ring;
}

LinkPath Fabric::ring(const std::vector<int>& devices) const {
  if (devices.size() < 2) return {{}, cluster_.device.memory_bandwidth, 0};
  std::vector<int> members = devices;
  std::sort(members.begin(), members.end());
  const int count = cluster_.devices_per_machine;
  const int first = members.front() / count, last = members.back() / count;
  std::map<std::vector<int>, LocalRing> known;  // by devices of a machine
  std::set<int> links;
  LinkPath route;
  route.rate = std::numeric_limits<double>::infinity();
  size_t begin = 0;
  while (begin < members.size()) {  // one machine at a time
    const int machine = members[begin] / count;
    std::vector<int> local;
    size_t end = begin;
    while (end < members.size() && members[end] / count == machine) {
      local.push_back(members[end++] - machine * count);
    }
    auto found = known.find(local);
    if (found == known.end()) found = known.emplace(local, local_ring(local)).first;
    const LocalRing& own = found->second;
    route.rate = std::min(route.rate, own.rate);
    route.latency = std::max(route.latency, own.latency);
    const bool crosses = local.size() < members.size();
    if (crosses) {
      route.rate = std::min(route.rate, cluster_.network.bandwidth);
      route.latency = std::max(route.latency, cluster_.network.latency);
    }
    begin = end;
    if (machine - first >= kWatchedMachines && last - machine >= kWatchedMachines) continue;
    for (size_t i = 0; i < local.size(); ++i) {
      const int from = machine * count + local[i];
      const int to = machine * count + local[(i + 1) % local.size()];
      links.insert({2 * from, 2 * from + 1});
      if (from == to || own.bonded) continue;
      const LinkPath hop = between(from, to);
      links.insert(hop.links.begin(), hop.links.end());
    }
    if (crosses) links.insert({network_begin_ + 2 * machine, network_begin_ + 2 * machine + 1});
  }
  route.links.assign(links.begin(), links.end());
  return route;
}

void route_message(SimulationItem& item, const LinkPath& route, double bytes, double efficiency) {
  item.links = route.links;
  item.bytes = bytes;
  item.rate = route.rate * efficiency;
  item.seconds += route.latency;
}

void route_collective(SimulationItem& item, const LinkPath& route, Collective kind, int members,
                      double bytes, double efficiency) {
  if (members < 2) return;
  const auto seconds = [&](const CollectiveWork& work) {
    return work.hops * route.latency + work.bytes / (route.rate * efficiency);
  };
  CollectiveWork work = ring_work(kind, members, bytes);
  if (kind == Collective::all_reduce) {
    const CollectiveWork tree = tree_work(members, bytes);
    if (seconds(tree) < seconds(work)) work = tree;
  }
  route_message(item, route, work.bytes, efficiency);
  item.seconds += route.latency * (work.hops - 1);
}

}  // namespace millrace::simulate
