#include "planner/simulate/fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "planner/cluster/topology.h"

namespace millrace {
namespace {

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
  for (int device = 0; device < cluster.devices(); ++device) {
    double port = 0, bonded = 0;
    for (int other = 0; other < count; ++other) {
      if (other == device % count) continue;
      const int peer = device - device % count + other;
      const double bandwidth = cluster.link_between(device, peer).bandwidth;
      if (is_bonded(cluster, device, peer)) bonded += bandwidth;
      port = std::max(port, bandwidth);
    }
    port = std::max({port, bonded, cluster.machines > 1 ? cluster.network.bandwidth : 0.0, 1.0});
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
                        cluster.link_between(from, to).bandwidth});
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

double Fabric::bonded_bandwidth(int device, const std::vector<int>& others) const {
  double sum = 0;
  for (const int other : others) {
    if (other != device && is_bonded(cluster_, device, other)) {
      sum += cluster_.link_between(device, other).bandwidth;
    }
  }
  return sum;
}

LinkPath Fabric::ring(const std::vector<int>& devices) const {
  if (devices.size() < 2) return {{}, cluster_.device.memory_bandwidth, 0};
  std::vector<int> members = devices;
  std::sort(members.begin(), members.end());
  const int count = cluster_.devices_per_machine;
  std::set<int> links;
  LinkPath route;
  route.rate = std::numeric_limits<double>::infinity();
  size_t begin = 0;
  while (begin < members.size()) {  // one machine at a time
    size_t end = begin;
    while (end < members.size() && members[end] / count == members[begin] / count) ++end;
    const std::vector<int> local(members.begin() + static_cast<long>(begin),
                                 members.begin() + static_cast<long>(end));
    double bonded = std::numeric_limits<double>::infinity();
    for (const int device : local) bonded = std::min(bonded, bonded_bandwidth(device, local));
    for (size_t i = 0; i < local.size(); ++i) {
      const int from = local[i], to = local[(i + 1) % local.size()];
      links.insert({2 * from, 2 * from + 1});
      if (from == to) continue;
      const LinkClass link = cluster_.link_between(from, to);
      route.latency = std::max(route.latency, link.latency);
      if (bonded > 0) continue;
      route.rate = std::min(route.rate, link.bandwidth);
      const LinkPath hop = between(from, to);
      links.insert(hop.links.begin(), hop.links.end());
    }
    if (local.size() > 1 && bonded > 0) route.rate = std::min(route.rate, bonded);
    if (local.size() < members.size()) {
      route.rate = std::min(route.rate, cluster_.network.bandwidth);
      route.latency = std::max(route.latency, cluster_.network.latency);
      const int machine = members[begin] / count;
      links.insert({network_begin_ + 2 * machine, network_begin_ + 2 * machine + 1});
    }
    begin = end;
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

namespace {

void route_collective(SimulationItem& item, const LinkPath& route, int hops, double bytes,
                      double efficiency) {
  route_message(item, route, bytes, efficiency);
  item.seconds += route.latency * (hops - 1);
}

}  // namespace

void route_all_reduce(SimulationItem& item, const LinkPath& route, int members, double bytes,
                      double efficiency) {
  if (members < 2) return;
  route_collective(item, route, 2 * (members - 1), 2.0 * (members - 1) / members * bytes,
                   efficiency);
}

void route_all_gather(SimulationItem& item, const LinkPath& route, int members, double bytes,
                      double efficiency) {
  if (members < 2) return;
  route_collective(item, route, members - 1, 1.0 * (members - 1) / members * bytes, efficiency);
}

}  // namespace millrace
